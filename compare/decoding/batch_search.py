"""The searches that a ``Translator`` runs on batches; other processes receive them by pickle.

Shapes: B sentences, S source positions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from compare.decoding.length_penalty import LengthPenalty
from compare.decoding.sampling import Sampling, sample
from compare.decoding.search import Hypothesis, SpecialIds, search_all, search_n_best
from data.sequences import Ints
from data.vocabulary import BOS, EOS, PAD

if TYPE_CHECKING:
    from compare.models.registry import Model

SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)


class BatchSearch(Protocol):
    """Search of one batch; other processes receive it by pickle."""

    def __call__(
        self, model: "Model", src: Tensor, src_mask: Tensor, *, limits: Tensor, rows: Ints
    ) -> list[list[Any]]:
        """Search; ``rows`` are the positions of the sentences in the call.

        Returns:
            One or more lists with one entry per sentence.
        """


def find_best(
    model: "Model",
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    rows: Ints,
    beam_size: int,
    penalties: Sequence[LengthPenalty],
) -> list[list[Hypothesis]]:
    """Find the best hypothesis under each penalty: one list per penalty; see ``search_all``."""
    return search_all(
        model, src, src_mask, limits=limits, special=SPECIAL, beam_size=beam_size, penalties=penalties
    )


def find_n_best(
    model: "Model",
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    rows: Ints,
    beam_size: int,
    n_best: int,
    penalty: LengthPenalty,
) -> list[list[list[Hypothesis]]]:
    """Find the best hypotheses of each sentence; see ``search_n_best``."""
    found = search_n_best(
        model,
        src,
        src_mask,
        limits=limits,
        special=SPECIAL,
        beam_size=beam_size,
        n_best=n_best,
        penalty=penalty,
    )
    return [found]


def draw_samples(
    model: "Model",
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    rows: Ints,
    sampling: Sampling,
    number: int,
    repeats: Sequence[int],
) -> list[list[list[Hypothesis]]]:
    """Draw hypotheses of each sentence; see ``sample``."""
    found = sample(
        model,
        src,
        src_mask,
        limits=limits,
        special=SPECIAL,
        sampling=sampling,
        number=number,
        repeats=[repeats[row] for row in rows],
    )
    return [found]
