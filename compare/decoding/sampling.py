"""Sampling of translations: temperature, top-k and top-p, reproducible by a seed.

Shapes: B sentences, K samples each, S source positions, T steps, V vocabulary.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from compare.decoding.search import (
    COMPACT_SHARE,
    LOOK_EVERY,
    NAN_SCORES,
    Hypothesis,
    SpecialIds,
    is_synchronous,
    stable_topk,
    token_logp,
)
from compare.protocol import EncoderDecoder, keep
from compare.settings import Natural, Section


@dataclass(frozen=True, kw_only=True)
class Sampling(Section):
    """Distribution that each token is drawn from; the filters apply in this order."""

    temperature: Annotated[float, Meta(gt=0)] = 1.0
    """Divisor of the logits: below 1 sharper, above 1 flatter than the model's distribution."""
    top_k: Natural = 0
    """Draw from the k most probable tokens only (Fan et al. 2018, section 5.3); 0: from all."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Draw from the most probable tokens that together have at least this probability (Holtzman et al. 2020,
    section 3.1, nucleus sampling)."""
    seed: Natural = 1


@torch.inference_mode()
def sample(
    model: EncoderDecoder[Any, Any],
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    special: SpecialIds,
    sampling: Sampling,
    number: int = 1,
    repeats: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Draw translations of a batch, each token from the model's distribution after ``sampling``.

    Sample k of a sentence has a random generator of its own, a function of the seed, of k, of the source
    tokens, and of how often the same source came before (``repeats``; None: counted in the batch). So a
    sample depends neither on the other sentences nor on the ``number`` of samples, and equal sources get
    different ones. Token ids are drawn by inversion of the cumulative distribution in the order of
    probability; ties are in the order of ids. Other arguments are as for ``search_all``; at the limit the end
    of sentence is certain.

    Returns for each sentence its samples as drawn, each with its log-probability under the model itself:
    without temperature, filters and length penalty, end of sentence included. A ValueError says that
    ``number`` is below 1, or that the model's logits are NaN or have no softmax.
    """
    if number < 1:
        raise ValueError(f"n_best must be at least 1, found {number}")
    device, synchronous, steps = src.device, is_synchronous(src.device), int(limits.max()) + 1
    draws = _uniforms(src, src_mask, sampling.seed, number, steps, repeats).to(device)
    rows, limits = torch.arange(src.size(0), device=device), limits.to(device)
    shape = (src.size(0), number)
    is_open = torch.ones(shape, dtype=torch.bool, device=device)  # one row per entry of ``rows``
    drawn = torch.zeros(*shape, steps, dtype=torch.long, device=device)
    lengths = torch.zeros(shape, dtype=torch.long, device=device)
    scores = torch.zeros(shape, dtype=torch.float64, device=device)
    memory = model.encode(src, src_mask)
    state = model.init_state(memory, number, steps)
    tokens = torch.full(shape, special.bos, device=device)
    for time in range(steps):
        logits, state = model.step(tokens, state, memory)
        logp = token_logp(logits, special)
        tokens = draw(logp, draws[rows, :, time], sampling)
        tokens = tokens.masked_fill((limits[rows] == time).unsqueeze(1), special.eos)
        chosen = logp.gather(2, tokens.unsqueeze(2)).squeeze(2).double()
        scores[rows] += chosen.masked_fill(~is_open, 0.0)
        drawn[rows, :, time] = tokens
        ends = is_open & (tokens == special.eos)
        lengths[rows] = lengths[rows].masked_fill(ends, time)
        is_open &= ~ends
        if not (synchronous or (time + 1) % LOOK_EVERY == 0):
            continue
        unfinished = is_open.any(dim=1)
        if (count := int(unfinished.sum())) == 0:
            break
        if count < COMPACT_SHARE * len(rows):
            still_open = unfinished.nonzero().squeeze(1)
            rows, is_open, tokens = rows[still_open], is_open[still_open], tokens[still_open]
            memory, state = keep(memory, still_open), keep(state, still_open)
    if scores.isnan().any():
        raise ValueError(NAN_SCORES)
    parts = (drawn.tolist(), lengths.tolist(), scores.tolist())
    return [
        [Hypothesis(ids[:length], score) for ids, length, score in zip(*samples, strict=True)]
        for samples in zip(*parts, strict=True)
    ]


def draw(logp: Tensor, uniforms: Tensor, sampling: Sampling) -> Tensor:
    """Draw one token per hypothesis, (B, K), from logp (B, K, V) and random numbers (B, K) in [0, 1).

    Tokens of log-probability -inf are not drawn.
    """
    scaled = logp.double() / sampling.temperature
    if sampling.top_k:
        ordered, ids = stable_topk(scaled, min(sampling.top_k, scaled.size(2)))
    else:
        ordered, ids = scaled.sort(dim=2, descending=True, stable=True)
    probabilities = ordered.softmax(dim=2)
    if sampling.top_p < 1:
        before = _cumulative_sum(probabilities) - probabilities
        probabilities = probabilities.masked_fill(before >= sampling.top_p, 0.0)
    cumulative = _cumulative_sum(probabilities)
    target = uniforms.unsqueeze(2) * cumulative[:, :, -1:]
    last = (probabilities > 0).sum(dim=2, keepdim=True) - 1  # rounding must not lead beyond it
    index = (cumulative <= target).sum(dim=2, keepdim=True).minimum(last).clamp(min=0)
    return ids.gather(2, index).squeeze(2)


def _cumulative_sum(x: Tensor) -> Tensor:
    """Return x.cumsum(2), on the CPU where torch's own has no deterministic form on a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return x.cpu().cumsum(dim=2).to(x.device)
    return x.cumsum(dim=2)


def count_repeats(sources: Sequence[Sequence[int]]) -> list[int]:
    """Count for each source how often the same one came before."""
    seen: Counter[tuple[int, ...]] = Counter()
    counts = []
    for source in map(tuple, sources):
        counts.append(seen[source])
        seen[source] += 1
    return counts


def _uniforms(
    src: Tensor, src_mask: Tensor, seed: int, number: int, steps: int, repeats: Sequence[int] | None
) -> Tensor:
    """Draw the random numbers of all steps, (B, number, steps); a shorter batch takes the first ones."""
    sources = [row[mask].tolist() for row, mask in zip(src.cpu(), src_mask.cpu().bool(), strict=True)]
    repeats = count_repeats(sources) if repeats is None else repeats
    draws = [
        [np.random.default_rng([seed, k, repeat, *source]).random(steps) for k in range(number)]
        for source, repeat in zip(sources, repeats, strict=True)
    ]
    return torch.from_numpy(np.array(draws))
