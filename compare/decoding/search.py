"""Greedy and beam search over any model that has encode, init_state and step.

Shapes: B sentences, K hypotheses each, V vocabulary, L steps. A sentence's result does not depend on
its neighbours: limits are per sentence, ties go to the lowest id, finished sentences leave the batch.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from compare.protocol import EncoderDecoder, keep, select

BLOCK = 64
"""Neighbours in the vocabulary of which search looks at the best one first."""
COMPACT_SHARE = 0.8
"""Finished sentences leave the batch once fewer than this share of its rows are still searched."""


class Hypothesis(NamedTuple):
    """The best translation found for one sentence."""

    tokens: list[int]
    """Ids without begin and end of sentence."""
    score: float
    """Log-probability, end of sentence included, divided by the length penalty."""


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """The vocabulary's entries that search must know."""

    pad: int
    bos: int
    eos: int


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + length) / 6) ** alpha, where length counts the end of sentence (Wu et al. 2016, eq. 14)."""
    penalty: Tensor | float = ((5 + length) / 6) ** alpha
    return penalty


@torch.inference_mode()
def search(
    model: EncoderDecoder[Any, Any],
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor,
    special: SpecialIds,
    beam_size: int = 1,
    alpha: float = 0.0,
) -> list[Hypothesis]:
    """Translate src (B, S); beam_size 1 is greedy search.

    A sentence is finished once ``beam_size`` of its hypotheses have ended, or once no open one can still
    pass the best ended one. At its last allowed step every hypothesis must end.

    Args:
        model: in eval mode.
        src: ids (B, S).
        src_mask: True at real tokens (B, S).
        limits: most tokens of each translation, (B,), at least 0; the end of sentence is not counted.
        special: ids of padding, begin and end of sentence.
        beam_size: hypotheses kept for each sentence.
        alpha: exponent of the length penalty.

    Returns:
        The best hypothesis of each sentence, in the order of ``src``.
    """
    memory = model.encode(src, src_mask)
    steps = int(limits.max()) + 1
    beams = _Beams(limits, beam_size, steps, special, alpha, src.device)
    state = model.init_state(memory, beam_size, steps)
    tokens = torch.full((src.size(0), beam_size), special.bos, device=src.device)
    for _ in range(steps):
        logits, state = model.step(tokens, state, memory)
        tokens, parents = beams.advance(logits)
        rows = beams.compact()
        if rows is not None:
            if len(rows) == 0:
                break
            tokens, parents = tokens[rows], parents[rows]
            memory, state = keep(memory, rows), keep(state, rows)
        if beam_size > 1:
            state = select(state, parents)
    return beams.results()


class _Beams:
    """The open hypotheses of the sentences still searched, and the best ended one of each sentence."""

    def __init__(
        self, limits: Tensor, beam: int, steps: int, special: SpecialIds, alpha: float, device: torch.device
    ) -> None:
        rows = limits.size(0)
        self.special, self.alpha, self.beam, self.time = special, alpha, beam, 0
        self.rows = torch.arange(rows, device=device)  # which sentence of the call each row is
        self.limits = limits.to(device)
        self.open = torch.ones(rows, dtype=torch.bool, device=device)
        self.ended = torch.zeros(rows, dtype=torch.long, device=device)  # hypotheses that have ended
        self.scores = torch.full((rows, beam), float("-inf"), device=device)
        self.scores[:, 0] = 0.0  # all beams begin alike: only the first may be continued
        self.tokens = torch.zeros((rows, beam, steps), dtype=torch.long, device=device)
        self.best_scores = torch.full((rows,), float("-inf"), device=device)
        self.best_tokens = torch.zeros((rows, steps), dtype=torch.long, device=device)
        self.best_lengths = torch.zeros(rows, dtype=torch.long, device=device)

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step on logits (B, K, V); returns the tokens (B, K) to feed and their parents (B, K)."""
        scores, parents, tokens = self._candidates(logits)
        ends = tokens == self.special.eos
        # Of 2K candidates at most K end (one for each parent), so K others remain; greedy search needs none,
        # for an end closes its row. Only an end among the best K counts: the others would not have been kept.
        first = torch.arange(scores.size(1), device=scores.device) < self.beam
        self._finish(ends & first & self.open.unsqueeze(1), scores, parents)
        order = ends.long().sort(dim=1, stable=True).indices[:, : self.beam]
        tokens, parents = tokens.gather(1, order), parents.gather(1, order)
        self.scores = scores.gather(1, order)
        if self.beam > 1:
            past = self.tokens[:, :, : self.time]
            index = parents.unsqueeze(2).expand(-1, -1, self.time)
            self.tokens[:, :, : self.time] = past.gather(1, index)
        self.tokens[:, :, self.time] = tokens
        self.time += 1
        self._close()
        return tokens, parents

    def compact(self) -> Tensor | None:
        """The rows (B',) to go on with, if few enough are left; else None."""
        left = int(self.open.sum())
        if left and left >= COMPACT_SHARE * len(self.open):
            return None
        rows = self.open.nonzero().squeeze(1)
        for name in ("rows", "limits", "open", "ended", "scores", "tokens"):
            setattr(self, name, getattr(self, name)[rows])
        return rows

    def results(self) -> list[Hypothesis]:
        """The best ended hypothesis of every sentence."""
        lengths, scores = self.best_lengths.tolist(), self.best_scores.tolist()
        tokens = self.best_tokens.tolist()
        return [Hypothesis(tokens[i][: lengths[i]], scores[i]) for i in range(len(lengths))]

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The C = 2K best continuations of each sentence, for K = 1 one: scores, parents, tokens, (B, C)."""
        narrow = logits.dtype in (torch.bfloat16, torch.float16)
        logp = logits.log_softmax(2, torch.float32 if narrow else None)
        logp[:, :, self.special.pad] = float("-inf")
        logp[:, :, self.special.bos] = float("-inf")
        must_end = (self.limits == self.time) & self.open
        if must_end.any():
            end = logp[:, :, self.special.eos].clone()
            logp[must_end] = float("-inf")
            logp[:, :, self.special.eos] = end
        return _best(self.scores.to(logp.dtype), logp, 1 if self.beam == 1 else 2 * self.beam)

    def _finish(self, ends: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Remember the best hypothesis that ends now in each row; ends and scores are (B, C)."""
        if not ends.any():
            return
        ends = ends & scores.isfinite()
        self.ended += ends.sum(dim=1)
        value, index = scores.masked_fill(~ends, float("-inf")).max(dim=1)
        value = value / length_penalty(self.time + 1, self.alpha)
        better = value > self.best_scores[self.rows].to(value.dtype)
        rows = better.nonzero().squeeze(1)
        where = self.rows[rows]
        parent = parents[rows, index[rows]]
        self.best_scores = self.best_scores.to(value.dtype)
        self.best_scores[where] = value[rows]
        self.best_tokens[where] = self.tokens[rows, parent]
        self.best_lengths[where] = self.time

    def _close(self) -> None:
        """Close the rows that are finished: enough ended, the limit reached, or nothing better possible."""
        longest = length_penalty(self.limits.to(self.scores.dtype) + 1, self.alpha)
        # A log-probability only falls, so this bounds what an open hypothesis can reach.
        reachable = self.scores.max(dim=1).values / longest
        hopeless = self.best_scores[self.rows] >= reachable
        self.open &= ~(hopeless | (self.ended >= self.beam) | (self.time > self.limits))


def _best(scores: Tensor, logp: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best sums of scores (B, K) and logp (B, K, V) of each sentence, with their k and v, (B, count).

    Ties go to the lowest k, then to the lowest v. Only the ``count`` blocks of the highest maxima are
    searched: whatever lies in another one is preceded by as many maxima. A maximum costs a tenth of a sort.
    """
    size = logp.size(2)
    if size % BLOCK:  # filling up is a copy, even by nothing
        logp = pad(logp, (0, -size % BLOCK), value=float("-inf"))
    width = logp.size(2)
    blocks = logp.view(len(logp), -1, BLOCK)  # (B, K * blocks of a hypothesis, BLOCK)
    start = scores.repeat_interleave(width // BLOCK, dim=1)
    chosen = _stable_topk(blocks.amax(2) + start, min(count, blocks.size(1)))[1].sort(dim=1).values
    sums = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK)) + start.gather(1, chosen).unsqueeze(2)
    found, index = _stable_topk(sums.flatten(1), min(count, scores.size(1) * size))
    place = chosen.gather(1, index // BLOCK) * BLOCK + index % BLOCK
    return found, place // width, (place % width).clamp(max=size - 1)  # past it are impossible ones alone


def _stable_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest of the last dimension, in order; among equals the lowest index first.

    ``torch.topk`` promises no order among equals, neither inside the result nor at its border. The border
    is told by one more value than asked for; rows with a tie there are sorted whole, which is rare.
    """
    if count == 1:
        best = values.max(dim=-1, keepdim=True)  # the first among equals, as documented
        return best.values, best.indices
    size = values.size(-1)
    top, index = values.topk(min(count + 1, size))
    if size > count:
        tied = (top[..., count - 1] == top[..., count]) & top[..., count].isfinite()
        if tied.any():
            top[tied], index[tied] = (
                part[..., : count + 1] for part in values[tied].sort(stable=True, descending=True)
            )
        top, index = top[..., :count], index[..., :count]
    by_index = index.argsort(dim=-1)
    top, index = top.gather(-1, by_index), index.gather(-1, by_index)
    order = top.argsort(dim=-1, descending=True, stable=True)
    return top.gather(-1, order), index.gather(-1, order)
