"""Greedy and beam search over any model that has encode, init_state and step.

Shapes: B sentences, S source positions. The translation of a sentence does not depend on the rest of its
batch: limits are per sentence, ties go to the lowest id.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from compare.decoding.beams import Beams, Hypothesis, NBestBeams, SpecialIds
from compare.decoding.length_penalty import NO_PENALTY, LengthPenalty
from compare.decoding.sampling import Sampling, sample
from compare.protocol import EncoderDecoder, keep, select
from data.encode import Ints
from data.vocabulary import BOS, EOS, PAD

if TYPE_CHECKING:
    from compare.models.registry import Model

__all__ = ["Hypothesis", "SpecialIds", "search", "search_all", "search_n_best"]


def search(
    model: EncoderDecoder[Any, Any],
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    special: SpecialIds,
    beam_size: int = 1,
    penalty: LengthPenalty = NO_PENALTY,
) -> list[Hypothesis]:
    """Translate a batch by beam search; beam_size 1 is greedy search.

    A sentence is finished once ``beam_size`` of its hypotheses have ended, or once no open hypothesis can
    still exceed the best ended one. At the last step allowed, every hypothesis must end.

    Args:
        model: the model, in eval mode.
        src: source ids, (B, S).
        src_mask: True at real source tokens, (B, S).
        limits: maximum length of each translation, (B,), at least 0; the end of sentence is not counted.
            Best on the CPU, where reading them does not wait for another device.
        special: ids of padding, begin and end of sentence.
        beam_size: open hypotheses per sentence.
        penalty: the length penalty.

    Returns:
        The best hypothesis of each sentence, in the order of ``src``.

    Raises:
        ValueError: the model's logits are NaN, or infinite so that their softmax is.
    """
    (found,) = search_all(
        model, src, src_mask, limits=limits, special=special, beam_size=beam_size, penalties=[penalty]
    )
    return found


@torch.inference_mode()
def search_all(
    model: EncoderDecoder[Any, Any],
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    special: SpecialIds,
    beam_size: int,
    penalties: Sequence[LengthPenalty],
) -> list[list[Hypothesis]]:
    """Do the searches of several length penalties at once, at about the cost of the longest of them.

    Open hypotheses all have the same length and are ranked by log-probability, so a penalty decides only
    between ended ones. Each penalty therefore gets exactly what ``search`` finds with it.

    Args:
        model: as for ``search``, like all but the last argument.
        src: source ids, (B, S).
        src_mask: True at real source tokens, (B, S).
        limits: maximum length of each translation, (B,).
        special: ids of padding, begin and end of sentence.
        beam_size: open hypotheses per sentence.
        penalties: at least one length penalty.

    Returns:
        For each penalty the best hypothesis of each sentence, in the order of ``src``.

    Raises:
        ValueError: as ``search``.
    """
    steps = int(limits.max()) + 1
    beams = Beams(limits, beam_size, steps, special, penalties, src.device)
    _search(model, src, src_mask, beams)
    return beams.results()


@torch.inference_mode()
def search_n_best(
    model: EncoderDecoder[Any, Any],
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    special: SpecialIds,
    beam_size: int,
    n_best: int,
    penalty: LengthPenalty = NO_PENALTY,
) -> list[list[Hypothesis]]:
    """Translate a batch by beam search and keep several hypotheses per sentence.

    The first is what ``search`` finds. The search goes on until ``beam_size`` hypotheses of a sentence have
    ended, or no open one can exceed the n-th best of them.

    Args:
        model: as for ``search``, like all but ``n_best``.
        src: source ids, (B, S).
        src_mask: True at real source tokens, (B, S).
        limits: maximum length of each translation, (B,).
        special: ids of padding, begin and end of sentence.
        beam_size: open hypotheses per sentence.
        n_best: number of hypotheses to keep, from 1 to ``beam_size``.
        penalty: the length penalty.

    Returns:
        For each sentence its hypotheses, all different, from the highest score to the lowest; of equal scores
        first the one that ended earlier, then the one whose last open hypothesis came first. There are fewer
        than ``n_best`` only where so few are possible, as for limit 0.

    Raises:
        ValueError: ``n_best`` is out of range, or as ``search``.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            f"n_best must be from 1 to beam_size ({beam_size}), found {n_best}: a wider beam finds more"
        )
    steps = int(limits.max()) + 1
    beams = NBestBeams(limits, beam_size, steps, special, [penalty], src.device, n_best=n_best)
    _search(model, src, src_mask, beams)
    (found,) = beams.n_best()
    return found


def _search(model: EncoderDecoder[Any, Any], src: Tensor, src_mask: Tensor, beams: Beams) -> None:
    """Extend the hypotheses of ``beams`` until all sentences are finished."""
    memory = model.encode(src, src_mask)
    state = model.init_state(memory, beams.beam, beams.steps)
    tokens = torch.full((src.size(0), beams.beam), beams.special.bos, device=src.device)
    for _ in range(beams.steps):
        logits, state = model.step(tokens, state, memory)
        tokens, parents = beams.advance(logits)
        rows = beams.compact()
        if rows is not None:
            if len(rows) == 0:
                break
            tokens, parents = tokens[rows], parents[rows]
            memory, state = keep(memory, rows), keep(state, rows)
        if beams.beam > 1:
            state = select(state, parents)


# The searches that a ``Translator`` runs on batches; other processes receive them by pickle.
#
# Shapes: B sentences, S source positions.


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


# Generation of translations from tensors, by search or by sampling.


def generate(
    model: EncoderDecoder[Any, Any],
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor | int,
    special: SpecialIds,
    beam_size: int | None = None,
    n_best: int = 1,
    penalty: LengthPenalty = NO_PENALTY,
    sampling: Sampling | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch; ``Translator.generate`` does so with text.

    Args:
        model: the model, in eval mode.
        src: source ids with their end of sentence, padded on the right, (B, S).
        src_mask: True at real source tokens, (B, S).
        limits: maximum length of each translation, end of sentence not counted, (B,); or one number for all.
        special: ids of padding, begin and end of sentence.
        beam_size: open hypotheses per sentence of beam search; None: ``n_best``, so that 1 is greedy search.
        n_best: hypotheses per sentence.
        penalty: the length penalty of beam search.
        sampling: draw ``n_best`` samples per sentence instead of searching.

    Returns:
        For each sentence its hypotheses: those of ``search_n_best``, the best first, or the samples of
        ``sample``, as drawn.

    Raises:
        ValueError: options that do not go together, or as ``search_n_best`` and ``sample``.
    """
    if isinstance(limits, int):
        limits = torch.full((src.size(0),), limits, device=src.device)
    if sampling is None:
        return search_n_best(
            model,
            src,
            src_mask,
            limits=limits,
            special=special,
            beam_size=n_best if beam_size is None else beam_size,
            n_best=n_best,
            penalty=penalty,
        )
    if beam_size is not None or penalty != NO_PENALTY:
        raise ValueError("sampling has no beam_size and no length penalty: leave them out, or sampling")
    return sample(model, src, src_mask, limits=limits, special=special, sampling=sampling, number=n_best)
