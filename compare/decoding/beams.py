"""The hypotheses of a beam search: best continuations, bookkeeping of beams, n-best lists."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from compare.decoding.length_penalty import LengthPenalty

# The best continuations of hypotheses, with ties in a fixed order.
#
# Shapes: B sentences, K hypotheses each, V vocabulary.


BLOCK = 64
"""Size of the blocks of adjacent vocabulary entries whose maxima are compared before single entries."""


def is_synchronous(device: torch.device) -> bool:
    """Return whether results are there when a call returns, so that reading a value waits for nothing."""
    return device.type == "cpu"


def best_continuations(scores: Tensor, logp: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the ``count`` largest sums of scores (B, K) and logp (B, K, V) per sentence.

    Ties go to the lowest hypothesis k, then to the lowest token v. Only the ``count`` blocks with the largest
    maxima are searched, since an entry of any other block is preceded by these maxima. Taking maxima costs a
    tenth of sorting.

    Returns:
        The sums in descending order, their hypotheses k and their tokens v, (B, count) each.
    """
    size = logp.size(2)
    if size % BLOCK:  # pad copies the tensor even if there is nothing to add
        logp = pad(logp, (0, -size % BLOCK), value=float("-inf"))
    width = logp.size(2)
    blocks = logp.view(len(logp), -1, BLOCK)  # (B, K * blocks per hypothesis, BLOCK)
    block_scores = scores.repeat_interleave(width // BLOCK, dim=1)
    chosen = _stable_topk(blocks.amax(2) + block_scores, min(count, blocks.size(1)))[1].sort(dim=1).values
    sums = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK))
    sums = sums + block_scores.gather(1, chosen).unsqueeze(2)
    best, index = _stable_topk(sums.flatten(1), min(count, scores.size(1) * size))
    position = chosen.gather(1, index // BLOCK) * BLOCK + index % BLOCK  # k * width + v
    return best, position // width, (position % width).clamp(max=size - 1)  # padding has score -inf


def _stable_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the ``count`` largest values of the last dimension, in descending order, and their indices.

    Equal values are ordered by index. ``torch.topk`` leaves open the order of equal values, and which of them
    it returns if they do not all fit. One value more than needed shows the latter case, which is rare: these
    rows are sorted as a whole. A GPU sorts all rows: that takes less time than to wait for the answer.
    """
    if count == 1:
        best = values.max(dim=-1, keepdim=True)  # documented to return the first of equal values
        return best.values, best.indices
    if not is_synchronous(values.device):
        top, index = values.sort(stable=True, descending=True)
        return top[..., :count], index[..., :count]
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


# The hypotheses of a beam search.
#
# Shapes: B sentences, K open hypotheses each, C candidates per sentence, V vocabulary, P length penalties.


COMPACT_SHARE = 0.8
"""Finished sentences are dropped once the share of unfinished ones in the batch falls below this."""
LOOK_EVERY = 8
"""Steps between two looks at the finished sentences where a look waits for the device, as on a GPU."""
NAN_SCORES = "the model's scores are NaN: its weights are damaged or its numbers overflow"
"""Error message for logits that are NaN, or infinite so that their softmax is."""
NEVER_ENDS = "the model gives the end of a sentence the probability 0, so no translation ends"
"""Error message for a logit of the end of sentence that is minus infinity."""


class Hypothesis(NamedTuple):
    """Best translation found for one sentence under one length penalty."""

    tokens: list[int]
    """Ids without begin and end of sentence."""
    score: float
    """Log-probability, end of sentence included, divided by the length penalty."""


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """Ids of padding, begin and end of sentence."""

    pad: int
    """Padding, which never comes out."""
    bos: int
    """Begin of sentence, which every hypothesis starts from and which never comes out."""
    eos: int
    """End of sentence."""


def log_probabilities(logits: Tensor) -> Tensor:
    """Compute the logarithm of the softmax of logits (B, K, V), in fp32 or better."""
    half_precision = logits.dtype in (torch.bfloat16, torch.float16)
    return logits.log_softmax(2, torch.float32 if half_precision else None)


def token_logp(logits: Tensor, special: SpecialIds) -> Tensor:
    """Compute the log-probabilities of tokens, of logits (B, K, V); -inf for padding and begin."""
    logp = log_probabilities(logits)
    logp[:, :, special.pad] = float("-inf")
    logp[:, :, special.bos] = float("-inf")
    return logp


class Beams:
    """Open hypotheses of the unfinished sentences, and the best ended hypotheses of every sentence.

    Tensors of open hypotheses have one row per sentence still in the batch, those named ``best_`` one row per
    sentence of the call and one column per penalty; ``rows`` maps the former rows to the latter.
    """

    def __init__(
        self,
        limits: Tensor,
        beam: int,
        steps: int,
        special: SpecialIds,
        penalties: Sequence[LengthPenalty],
        device: torch.device,
    ) -> None:
        rows = limits.size(0)
        shape = (rows, len(penalties))
        self.special, self.beam, self.time, self.steps = special, beam, 0, steps
        self.synchronous = is_synchronous(device)
        self.last_steps = set(limits.tolist())  # steps at which some sentence must end
        by_length = [[penalty.divisor(length) for penalty in penalties] for length in range(1, steps + 1)]
        self.divisors = torch.tensor(by_length, dtype=torch.float64, device=device)  # (steps, P)
        self.rows = torch.arange(rows, device=device)  # sentence of the call in each row
        self.limits = limits.to(device)
        self.largest = self.divisors[self.limits]  # of hypotheses as long as allowed, (B, P)
        self.open = torch.ones(rows, dtype=torch.bool, device=device)
        self.ended = torch.zeros(rows, dtype=torch.long, device=device)  # number of ended hypotheses
        self.scores = torch.full((rows, beam), float("-inf"), device=device)
        self.scores[:, 0] = 0.0  # all hypotheses begin alike: only the first may be continued
        self.tokens = torch.zeros((rows, beam, steps), dtype=torch.long, device=device)
        self.best_scores = torch.full(shape, float("-inf"), device=device)
        self.best_tokens = torch.zeros((*shape, steps), dtype=torch.long, device=device)
        self.best_lengths = torch.zeros(shape, dtype=torch.long, device=device)

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step on logits (B, K, V); returns the next tokens (B, K) and their parents (B, K)."""
        scores, parents, tokens = self._candidates(logits)
        ends = (tokens == self.special.eos) & scores.isfinite()
        # Of 2K candidates at most K end (one per parent), so K others remain; greedy search needs no other,
        # because its only hypothesis has ended. An end counts only among the best K candidates.
        among_best = torch.arange(scores.size(1), device=scores.device) < self.beam
        self._finish(ends & among_best & self.open.unsqueeze(1), scores, parents)
        if self.beam == 1:
            self.scores = scores
        else:
            order = ends.long().sort(dim=1, stable=True).indices[:, : self.beam]
            tokens, parents = tokens.gather(1, order), parents.gather(1, order)
            self.scores = scores.gather(1, order)
            index = parents.unsqueeze(2).expand(-1, -1, self.time)
            self.tokens[:, :, : self.time] = self.tokens[:, :, : self.time].gather(1, index)
        self.tokens[:, :, self.time] = tokens
        self.time += 1
        self._close()
        return tokens, parents

    def compact(self) -> Tensor | None:
        """Drop finished sentences if they are many; returns the rows kept (B',), None if all are."""
        if not (self.synchronous or self.time % LOOK_EVERY == 0 or self.time == self.steps):
            return None
        unfinished = int(self.open.sum())
        if unfinished and unfinished >= COMPACT_SHARE * len(self.open):
            return None
        # NaN is the largest value to topk, so it stays in a row's scores until the row is dropped here.
        if self.scores[~self.open].isnan().any():
            raise ValueError(NAN_SCORES)
        rows = self.open.nonzero().squeeze(1)
        for name in ("rows", "limits", "largest", "open", "ended", "scores", "tokens"):
            setattr(self, name, getattr(self, name)[rows])
        return rows

    def results(self) -> list[list[Hypothesis]]:
        """Return for each penalty the best ended hypothesis of every sentence of the call.

        Raises:
            ValueError: the hypotheses of a sentence ended with probability 0.
        """
        parts = self.best_tokens, self.best_lengths, self.best_scores
        best = [part.transpose(0, 1).tolist() for part in parts]
        if any(-math.inf in scores for scores in best[-1]):
            raise ValueError(NEVER_ENDS)
        return [
            [Hypothesis(ids[:length], score) for ids, length, score in zip(*columns, strict=True)]
            for columns in zip(*best, strict=True)
        ]

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Find the C = 2K best continuations, 1 if K = 1: scores, parents and tokens, (B, C) each."""
        logp = token_logp(logits, self.special)
        if self.time in self.last_steps:
            must_end = (self.limits == self.time) & self.open
            eos_logp = logp[:, :, self.special.eos].clone()
            logp.masked_fill_(must_end[:, None, None], float("-inf"))
            logp[:, :, self.special.eos] = eos_logp
        return best_continuations(self.scores.to(logp.dtype), logp, 1 if self.beam == 1 else 2 * self.beam)

    def _finish(self, ends: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Update the best ended hypotheses of each row; ends, scores and parents are (B, C)."""
        if self.synchronous and not ends.any():
            return
        self.ended += ends.sum(dim=1)
        logp, index = scores.masked_fill(~ends, float("-inf")).max(dim=1)  # of equal length: best under all
        values = logp.unsqueeze(1) / self.divisors[self.time].to(logp.dtype)
        best = self.best_scores.to(values.dtype)
        better = values > best[self.rows]  # (B, P)
        self.best_scores = best.index_copy(0, self.rows, values.where(better, best[self.rows]))
        tokens = self.tokens.take_along_dim(parents.gather(1, index.unsqueeze(1)).unsqueeze(2), dim=1)
        kept = self.best_tokens[self.rows]
        self.best_tokens[self.rows] = tokens.where(better.unsqueeze(2), kept)
        self.best_lengths[self.rows] = self.best_lengths[self.rows].masked_fill(better, self.time)

    def _close(self) -> None:
        """Close finished rows: enough hypotheses ended, limit reached, or no better one possible."""
        # Log-probabilities only decrease, so this is an upper bound for every open hypothesis.
        reachable = self.scores.max(dim=1, keepdim=True).values / self.largest.to(self.scores.dtype)
        cannot_improve = (self.best_scores[self.rows] >= reachable).all(dim=1)
        self.open &= ~(cannot_improve | (self.ended >= self.beam) | (self.time > self.limits))


# The N best ended hypotheses of a beam search.
#
# Shapes: B sentences, C candidates per sentence, P length penalties, N hypotheses kept.


class NBestBeams(Beams):
    """Beams that keep the N best ended hypotheses of every sentence under each penalty.

    A sentence is finished as in ``Beams``, but no earlier than no open hypothesis can exceed its N-th best:
    ``best_scores`` holds the scores of these. What follows the point where ``Beams`` would have stopped
    cannot exceed the best, so the best of N is the hypothesis that ``Beams`` finds.
    """

    def __init__(
        self,
        limits: Tensor,
        beam: int,
        steps: int,
        special: SpecialIds,
        penalties: Sequence[LengthPenalty],
        device: torch.device,
        *,
        n_best: int,
    ) -> None:
        super().__init__(limits, beam, steps, special, penalties, device)
        shape = (limits.size(0), len(penalties), n_best)
        self.kept_scores = torch.full(shape, float("-inf"), device=device)
        self.kept_tokens = torch.zeros((*shape, steps), dtype=torch.long, device=device)
        self.kept_lengths = torch.zeros(shape, dtype=torch.long, device=device)

    def n_best(self) -> list[list[list[Hypothesis]]]:
        """Return for each penalty and sentence its ended hypotheses, the best first, at most N.

        Raises:
            ValueError: the hypotheses of a sentence ended with probability 0.
        """
        parts = self.kept_tokens, self.kept_lengths, self.kept_scores
        found = [
            [
                [
                    Hypothesis(ids[:length], score)
                    for ids, length, score in zip(*kept, strict=True)
                    if score > -math.inf
                ]
                for kept in zip(*sentences, strict=True)
            ]
            for sentences in zip(*(part.transpose(0, 1).tolist() for part in parts), strict=True)
        ]
        if not all(map(all, found)):
            raise ValueError(NEVER_ENDS)
        return found

    def _finish(self, ends: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Merge the hypotheses that end now, (B, C), into those kept; of equal scores the earlier ones stay.

        Those that end at the same step are in the order of search: by score, then by parent, then by token.
        """
        if self.synchronous and not ends.any():
            return
        self.ended += ends.sum(dim=1)
        values = scores.masked_fill(~ends, float("-inf")).unsqueeze(1)  # (B, 1, C)
        values = values / self.divisors[self.time].to(values.dtype).unsqueeze(1)  # (B, P, C)
        kept_scores = self.kept_scores.to(values.dtype)  # (all, P, N)
        penalties, size = kept_scores.shape[1:]
        together = torch.cat((kept_scores[self.rows], values), dim=2)
        ordered, order = together.sort(dim=2, descending=True, stable=True)
        chosen = order[:, :, :size]
        ended_tokens = self.tokens.take_along_dim(parents.unsqueeze(2), dim=1)  # (B, C, steps)
        tokens = torch.cat(
            (self.kept_tokens[self.rows], ended_tokens.unsqueeze(1).expand(-1, penalties, -1, -1)), dim=2
        )
        lengths = torch.cat(
            (self.kept_lengths[self.rows], torch.full_like(values, self.time, dtype=torch.long)), dim=2
        )
        self.kept_scores = kept_scores.index_copy(0, self.rows, ordered[:, :, :size])
        self.kept_tokens[self.rows] = tokens.take_along_dim(chosen.unsqueeze(3), dim=2)
        self.kept_lengths[self.rows] = lengths.take_along_dim(chosen, dim=2)
        self.best_scores = self.kept_scores[:, :, -1]
