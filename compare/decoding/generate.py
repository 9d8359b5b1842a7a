"""Generation of translations from tensors, by search or by sampling."""

from typing import Any

import torch
from torch import Tensor

from compare.decoding.beams import Hypothesis, SpecialIds
from compare.decoding.length_penalty import NO_PENALTY, LengthPenalty
from compare.decoding.sampling import Sampling, sample
from compare.decoding.search import search_n_best
from compare.protocol import EncoderDecoder


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
