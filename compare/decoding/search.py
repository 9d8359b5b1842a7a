"""Greedy and beam search over any model that has encode, init_state and step.

Shapes: B sentences, K hypotheses each, C candidates per sentence, V vocabulary. The translation of a
sentence does not depend on the rest of its batch: limits are per sentence, ties go to the lowest id.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compare.decoding.topk import best_continuations
from compare.protocol import EncoderDecoder, keep, select

COMPACT_SHARE = 0.8
"""Finished sentences are dropped once the share of unfinished ones in the batch falls below this."""


class Hypothesis(NamedTuple):
    """Best translation found for one sentence."""

    tokens: list[int]
    """Ids without begin and end of sentence."""
    score: float
    """Log-probability, end of sentence included, divided by the length penalty."""


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """Ids of padding, begin and end of sentence."""

    pad: int
    bos: int
    eos: int


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """Compute ((5 + length) / 6) ** alpha; length counts the end of sentence (Wu et al. 2016, eq. 14)."""
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
    """Translate a batch by beam search; beam_size 1 is greedy search.

    A sentence is finished once ``beam_size`` of its hypotheses have ended, or once no open hypothesis can
    still exceed the best ended one. At the last step allowed, every hypothesis must end.

    Args:
        model: the model, in eval mode.
        src: source ids, (B, S).
        src_mask: True at real source tokens, (B, S).
        limits: maximum length of each translation, (B,), at least 0; the end of sentence is not counted.
        special: ids of padding, begin and end of sentence.
        beam_size: open hypotheses per sentence.
        alpha: exponent of the length penalty.

    Returns:
        The best hypothesis of each sentence, in the order of ``src``.

    Raises:
        ValueError: the model's logits are NaN, or infinite so that their softmax is.
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
    """Open hypotheses of the unfinished sentences, and the best ended hypothesis of every sentence.

    Tensors of open hypotheses have one row per sentence still in the batch, those named ``best_`` one row per
    sentence of the call; ``rows`` maps the former to the latter.
    """

    def __init__(
        self, limits: Tensor, beam: int, steps: int, special: SpecialIds, alpha: float, device: torch.device
    ) -> None:
        rows = limits.size(0)
        self.special, self.alpha, self.beam, self.time = special, alpha, beam, 0
        self.rows = torch.arange(rows, device=device)  # sentence of the call in each row
        self.limits = limits.to(device)
        self.open = torch.ones(rows, dtype=torch.bool, device=device)
        self.ended = torch.zeros(rows, dtype=torch.long, device=device)  # number of ended hypotheses
        self.scores = torch.full((rows, beam), float("-inf"), device=device)
        self.scores[:, 0] = 0.0  # all hypotheses begin alike: only the first may be continued
        self.tokens = torch.zeros((rows, beam, steps), dtype=torch.long, device=device)
        self.best_scores = torch.full((rows,), float("-inf"), device=device)
        self.best_tokens = torch.zeros((rows, steps), dtype=torch.long, device=device)
        self.best_lengths = torch.zeros(rows, dtype=torch.long, device=device)

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step on logits (B, K, V); returns the next tokens (B, K) and their parents (B, K)."""
        scores, parents, tokens = self._candidates(logits)
        ends = tokens == self.special.eos
        # Of 2K candidates at most K end (one per parent), so K others remain; greedy search needs no other,
        # because its only hypothesis has ended. An end counts only among the best K candidates.
        among_best = torch.arange(scores.size(1), device=scores.device) < self.beam
        self._finish(ends & among_best & self.open.unsqueeze(1), scores, parents)
        order = ends.long().sort(dim=1, stable=True).indices[:, : self.beam]
        tokens, parents = tokens.gather(1, order), parents.gather(1, order)
        self.scores = scores.gather(1, order)
        if self.beam > 1:
            index = parents.unsqueeze(2).expand(-1, -1, self.time)
            self.tokens[:, :, : self.time] = self.tokens[:, :, : self.time].gather(1, index)
        self.tokens[:, :, self.time] = tokens
        self.time += 1
        self._close()
        return tokens, parents

    def compact(self) -> Tensor | None:
        """Drop finished sentences if they are many; returns the rows kept (B',), None if all are."""
        unfinished = int(self.open.sum())
        if unfinished and unfinished >= COMPACT_SHARE * len(self.open):
            return None
        # NaN is the largest value to topk, so it stays in a row's scores until the row is dropped here.
        if self.scores[~self.open].isnan().any():
            raise ValueError("the model's scores are NaN: its weights are damaged or its numbers overflow")
        rows = self.open.nonzero().squeeze(1)
        for name in ("rows", "limits", "open", "ended", "scores", "tokens"):
            setattr(self, name, getattr(self, name)[rows])
        return rows

    def results(self) -> list[Hypothesis]:
        """Return the best ended hypothesis of every sentence of the call."""
        lengths, scores = self.best_lengths.tolist(), self.best_scores.tolist()
        tokens = self.best_tokens.tolist()
        return [Hypothesis(tokens[i][: lengths[i]], scores[i]) for i in range(len(lengths))]

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Find the C = 2K best continuations, 1 if K = 1: scores, parents and tokens, (B, C) each."""
        half_precision = logits.dtype in (torch.bfloat16, torch.float16)
        logp = logits.log_softmax(2, torch.float32 if half_precision else None)
        logp[:, :, self.special.pad] = float("-inf")
        logp[:, :, self.special.bos] = float("-inf")
        must_end = (self.limits == self.time) & self.open
        if must_end.any():
            eos_logp = logp[:, :, self.special.eos].clone()
            logp[must_end] = float("-inf")
            logp[:, :, self.special.eos] = eos_logp
        return best_continuations(self.scores.to(logp.dtype), logp, 1 if self.beam == 1 else 2 * self.beam)

    def _finish(self, ends: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Update the best ended hypothesis of each row; ends, scores and parents are (B, C)."""
        if not ends.any():
            return
        ends = ends & scores.isfinite()
        self.ended += ends.sum(dim=1)
        value, index = scores.masked_fill(~ends, float("-inf")).max(dim=1)
        value = value / length_penalty(self.time + 1, self.alpha)
        better = value > self.best_scores[self.rows].to(value.dtype)
        rows = better.nonzero().squeeze(1)
        sentences = self.rows[rows]
        parent = parents[rows, index[rows]]
        self.best_scores = self.best_scores.to(value.dtype)
        self.best_scores[sentences] = value[rows]
        self.best_tokens[sentences] = self.tokens[rows, parent]
        self.best_lengths[sentences] = self.time

    def _close(self) -> None:
        """Close finished rows: enough hypotheses ended, limit reached, or no better one possible."""
        largest_penalty = length_penalty(self.limits.to(self.scores.dtype) + 1, self.alpha)
        # Log-probabilities only decrease, so this is an upper bound for every open hypothesis.
        reachable = self.scores.max(dim=1).values / largest_penalty
        cannot_improve = self.best_scores[self.rows] >= reachable
        self.open &= ~(cannot_improve | (self.ended >= self.beam) | (self.time > self.limits))
