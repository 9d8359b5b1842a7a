"""Greedy and beam search over any model that has encode, init_state and step.

Shapes: B sentences, S source positions. The translation of a sentence does not depend on the rest of its
batch: limits are per sentence, ties go to the lowest id.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from compare.decoding.beams import Beams, Hypothesis, SpecialIds
from compare.decoding.length_penalty import NO_PENALTY, LengthPenalty
from compare.decoding.n_best import NBestBeams
from compare.protocol import EncoderDecoder, keep, select

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
