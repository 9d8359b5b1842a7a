"""Greedy and beam search over any model that has encode, init_state and step.

The translation of a sentence does not depend on the rest of its batch: limits are per sentence, ties go to
the lowest id, and scores are in fp32 or better.

Shapes: B sentences, S source positions, K open hypotheses and C candidates each, V vocabulary, P length
penalties, N hypotheses that are kept.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn

from compare.config.sections import DecodeConfig
from compare.protocol import EncoderDecoder, keep, select
from compare.settings import NonNegative, Section
from data.vocabulary import BOS, EOS, PAD

COMPACT_SHARE = 0.8
"""Finished sentences are dropped once the share of unfinished ones in the batch falls below this."""
LOOK_EVERY = 8
"""Steps between two looks at the finished sentences where a look waits for the device, as on a GPU."""
NAN_SCORES = "the model's scores are NaN: its weights are damaged or its numbers overflow"
NEVER_ENDS = "the model gives the end of a sentence the probability 0, so no translation ends"


class Hypothesis(NamedTuple):
    """A translation that search or sampling has found."""

    tokens: list[int]
    score: float
    """Log-probability, end of sentence included; a search divides it by the length penalty."""


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """Ids of padding, begin and end of sentence."""

    pad: int
    bos: int
    """Begin of sentence, which every hypothesis starts from and which never comes out."""
    eos: int


SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)

Normalization = Literal["wu", "length"]


@dataclass(frozen=True)
class LengthPenalty(Section):
    """The divisor of the log-probability of an ended hypothesis; it never falls as length grows.

    - wu: ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14)
    - length: length ** alpha; alpha = 1 gives the mean per token
    """

    alpha: NonNegative = 0.0
    """Strength: the larger, the longer are the translations; 0: no penalty in either form."""
    normalization: Normalization = "wu"

    def divisor(self, length: int) -> float:
        """Compute the divisor for a number of tokens, at least 1: the end of sentence is counted."""
        base = (5 + length) / 6 if self.normalization == "wu" else float(length)
        return math.pow(base, self.alpha)

    def __str__(self) -> str:
        """Describe it for messages: "0.6 (wu)"."""
        return f"{self.alpha:g} ({self.normalization})"


NO_PENALTY = LengthPenalty()


def length_penalties(decode: DecodeConfig) -> tuple[LengthPenalty, ...]:
    """List the penalties of the grid, in rising order; with both forms, alpha = 0 stands once."""
    form = decode.length_normalization
    forms: tuple[Normalization, ...] = ("wu", "length") if form == "both" else (form,)
    grid = [LengthPenalty(alpha, form) for form in forms for alpha in decode.length_penalties]
    return tuple(penalty for penalty in grid if penalty.alpha or penalty.normalization == forms[0])


# The choice of a length penalty on validation.


PENALTY_TOLERANCE = 0.2
"""BLEU below the best that still counts as equal to it."""


@dataclass(frozen=True, kw_only=True)
class GridPoint:
    """One length penalty, and the scores of beam search with it on the validation set."""

    normalization: Normalization
    length_penalty: Annotated[float, Meta(ge=0)]
    bleu: Annotated[float, Meta(ge=0)]
    length_ratio: Annotated[float, Meta(ge=0)]
    """Tokens of the translations over tokens of the references."""

    @property
    def penalty(self) -> LengthPenalty:
        """The length penalty."""
        return LengthPenalty(self.length_penalty, self.normalization)


def choose_penalty(grid: Sequence[GridPoint]) -> int:
    """Choose the smallest penalty whose validation BLEU is within ``PENALTY_TOLERANCE`` of the best.

    Returns its index. This is a one-standard-error rule (Breiman et al. 1984, section 3.4.3; Hastie et al.
    2009, section 7.10): a few tenths of BLEU are within the noise of a validation set, so the simplest of the
    equally good points is taken, here the one with the shortest translations. The very best on validation
    fits the length of its references, which need not be that of other text.

    In one form, a smaller alpha gives shorter translations. Values of alpha in two forms do not compare:
    there the smallest penalty is that with the smallest length ratio, then with the smallest alpha.
    """
    best = max(point.bleu for point in grid)
    several_forms = len({point.normalization for point in grid}) > 1

    def size(index: int) -> tuple[float, float]:
        point = grid[index]
        return point.length_ratio if several_forms else 0.0, point.length_penalty

    return min(
        (index for index, point in enumerate(grid) if point.bleu >= best - PENALTY_TOLERANCE), key=size
    )


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
    """Return the best hypothesis of each sentence; arguments as for ``search_all``."""
    (hypotheses,) = search_all(
        model, src, src_mask, limits=limits, special=special, beam_size=beam_size, penalties=[penalty]
    )
    return [best for (best,) in hypotheses]


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
    n_best: int = 1,
) -> list[list[list[Hypothesis]]]:
    """Translate a batch by beam search, for several length penalties at about the cost of one of them.

    A sentence is finished once ``beam_size`` of its hypotheses have ended, or once no open hypothesis can
    still exceed the n-th best ended one under any penalty. At the last step allowed, every hypothesis must
    end. Open hypotheses all have the same length and are ranked by log-probability, so a penalty decides only
    between ended ones, and each gets exactly what a search with it alone finds.

    Args:
        model: the model, in eval mode.
        src: source ids, (B, S).
        src_mask: True at real source tokens, (B, S).
        limits: maximum length of each translation, (B,), end of sentence not counted; best on the CPU, where
            reading them does not wait for another device.
        special: ids of padding, begin and end of sentence.
        beam_size: open hypotheses per sentence; 1 is greedy search.
        penalties: at least one length penalty.
        n_best: hypotheses to keep per sentence, from 1 to ``beam_size``.

    Returns:
        For each penalty and each sentence its best hypotheses, all different, from the highest score to the
        lowest; of equal scores first the one that ended earlier, then the one whose last open hypothesis
        came first. There are fewer than ``n_best`` only where so few are possible, as for limit 0.

    Raises:
        ValueError: ``n_best`` is out of range, the model's logits are NaN or have no softmax, or no
            hypothesis of a sentence can end.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            f"n_best must be from 1 to beam_size ({beam_size}), found {n_best}: a wider beam finds more"
        )
    beams = Beams(limits, beam_size, special, penalties, n_best, src.device)
    memory = model.encode(src, src_mask)
    state = model.init_state(memory, beam_size, beams.steps)
    tokens = torch.full((src.size(0), beam_size), special.bos, device=src.device)
    for _ in range(beams.steps):
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


class Beams:
    """Open hypotheses of the unfinished sentences, and a record of every step of all sentences.

    Tensors of open hypotheses have one row per sentence still in the batch; ``rows`` maps these to the
    sentences of the call, which ``best`` has one row for. The record holds no hypothesis: which tokens it has
    is read off at the end, by following the parents from its last step to its first.
    """

    def __init__(
        self,
        limits: Tensor,
        beam: int,
        special: SpecialIds,
        penalties: Sequence[LengthPenalty],
        n_best: int,
        device: torch.device,
    ) -> None:
        sentences, steps = limits.size(0), int(limits.max()) + 1
        self.special, self.beam, self.n_best, self.time, self.steps = special, beam, n_best, 0, steps
        self.synchronous = is_synchronous(device)
        self.last_steps = set(limits.tolist())  # steps at which some sentence must end
        by_length = [[penalty.divisor(length) for penalty in penalties] for length in range(1, steps + 1)]
        self.divisors = torch.tensor(by_length, dtype=torch.float64, device=device)  # (steps, P)
        self.rows = torch.arange(sentences, device=device)  # sentence of the call in each row
        self.limits = limits.to(device)
        self.largest = self.divisors[self.limits]  # divisors of the longest hypotheses, (B, P)
        self.open = torch.ones(sentences, dtype=torch.bool, device=device)
        self.ended = torch.zeros(sentences, dtype=torch.long, device=device)  # number of ended hypotheses
        self.scores = torch.full((sentences, beam), float("-inf"), device=device)
        self.scores[:, 0] = 0.0  # all hypotheses begin alike: only the first may be continued
        self.best = torch.full((sentences, len(penalties), n_best), float("-inf"), device=device)
        # Time, rows, then what these chose: tokens and parents, or scores and parents of those that end.
        self.chosen: list[tuple[int, Tensor, Tensor, Tensor]] = []
        self.ends: list[tuple[int, Tensor, Tensor, Tensor]] = []

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step on logits (B, K, V); returns the next tokens (B, K) and their parents (B, K)."""
        scores, parents, tokens = self._candidates(logits)
        ends = (tokens == self.special.eos) & scores.isfinite()
        # At most K of 2K candidates end (one per parent), so K others remain; greedy search needs no other,
        # because its only hypothesis has ended. An end counts only among the best K candidates.
        best = slice(self.beam)
        self._finish(ends[:, best] & self.open.unsqueeze(1), scores[:, best], parents[:, best])
        self.scores = scores
        if self.beam > 1:
            order = ends.long().sort(dim=1, stable=True).indices[:, best]
            tokens, parents, self.scores = (part.gather(1, order) for part in (tokens, parents, scores))
        self.chosen.append((self.time, self.rows, tokens, parents))
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
        still_open = self.open.nonzero().squeeze(1)
        open_rows = (self.rows, self.limits, self.largest, self.open, self.ended, self.scores)
        self.rows, self.limits, self.largest, self.open, self.ended, self.scores = keep(open_rows, still_open)
        return still_open

    def results(self) -> list[list[list[Hypothesis]]]:
        """Return for each penalty and sentence its ended hypotheses, the best first, at most N.

        A ValueError says that the hypotheses of a sentence ended with probability 0.
        """
        if not self.ends:
            raise ValueError(NEVER_ENDS)
        scores, end_parents = self._by_time(self.ends, fill=-math.inf)  # (T, B, K)
        tokens, parents = self._by_time(self.chosen, fill=0)
        divisors = self.divisors[: self.time].t().to(scores.dtype)  # (P, T)
        values = (scores.transpose(0, 1) / divisors[:, None, :, None]).flatten(2)  # (P, B, T * K), in time
        best, index = stable_topk(values, self.n_best)
        last = end_parents.transpose(0, 1).flatten(1).expand_as(values).gather(2, index)
        record = tokens.tolist(), parents.tolist()
        hypotheses = [
            [
                [
                    Hypothesis(_follow(*record, sentence, position // self.beam, hypothesis), score)
                    for score, position, hypothesis in zip(*ended, strict=True)
                    if score > -math.inf
                ]
                for sentence, ended in enumerate(zip(*sentences, strict=True))
            ]
            for sentences in zip(best.tolist(), index.tolist(), last.tolist(), strict=True)
        ]
        if not all(map(all, hypotheses)):
            raise ValueError(NEVER_ENDS)
        return hypotheses

    def _by_time(self, record: Sequence[tuple[int, Tensor, Tensor, Tensor]], fill: float) -> list[Tensor]:
        """Arrange a record as two tensors (T, B, K), with ``fill`` in the first where a sentence has none."""
        times, rows, values, parents = zip(*record, strict=True)
        counts = torch.tensor([len(of_step) for of_step in rows], device=self.rows.device)
        where = torch.tensor(times, device=self.rows.device).repeat_interleave(counts), torch.cat(rows)
        shape, arranged = (self.time, len(self.best), self.beam), []
        for parts, empty in ((values, fill), (parents, 0)):
            joined = torch.cat(parts)
            arranged.append(joined.new_full(shape, empty).index_put(where, joined))
        return arranged

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
        if self.synchronous and not ends.any():
            return
        self.ended += ends.sum(dim=1)
        scores = scores.masked_fill(~ends, float("-inf"))
        self.ends.append((self.time, self.rows, scores, parents))
        values = scores.unsqueeze(1) / self.divisors[self.time].to(scores.dtype).unsqueeze(1)  # (B, P, K)
        best = self.best.to(values.dtype)
        together = torch.cat((best[self.rows], values), dim=2)
        self.best = best.index_copy(0, self.rows, together.topk(self.n_best).values)

    def _close(self) -> None:
        """Close finished rows: enough hypotheses ended, limit reached, or no better one possible."""
        # Log-probabilities only decrease, so this is an upper bound for every open hypothesis.
        reachable = self.scores.max(dim=1, keepdim=True).values / self.largest.to(self.scores.dtype)
        cannot_improve = (self.best[self.rows, :, -1] >= reachable).all(dim=1)
        self.open &= ~(cannot_improve | (self.ended >= self.beam) | (self.time > self.limits))


def _follow(
    tokens: list[list[list[int]]],
    parents: list[list[list[int]]],
    sentence: int,
    steps: int,
    hypothesis: int,
) -> list[int]:
    ids = []
    for time in range(steps - 1, -1, -1):
        ids.append(tokens[time][sentence][hypothesis])
        hypothesis = parents[time][sentence][hypothesis]
    return ids[::-1]


def is_synchronous(device: torch.device) -> bool:
    """Return whether results are there when a call returns, so that reading a value waits for nothing."""
    return device.type == "cpu"


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


# The best continuations of hypotheses, with ties in a fixed order.


def best_continuations(scores: Tensor, logp: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the ``count`` largest sums of scores (B, K) and logp (B, K, V) per sentence.

    Returns the sums in descending order, their hypotheses k and their tokens v, (B, count) each. Ties go to
    the lowest hypothesis k, then to the lowest token v.
    """
    best, index = stable_topk((scores.unsqueeze(2) + logp).flatten(1), count)
    return best, index // logp.size(2), index % logp.size(2)


def stable_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the ``count`` largest values of the last dimension and their indices, ties by index."""
    top, index = values.sort(stable=True, descending=True)
    return top[..., :count], index[..., :count]


# Ensembles: several models of one vocabulary that translate together.


class Ensemble(nn.Module):
    """p(y) = 1/M sum_m p_m(y) at each step, over M models: the arithmetic mean of their probabilities.

    Memory and state are tuples with one entry per member. An ensemble cannot be trained, and has no attention
    of its own.
    """

    def __init__(self, members: Sequence[EncoderDecoder[Any, Any]]) -> None:
        super().__init__()
        self.members: Any = nn.ModuleList(members)  # type: ignore[arg-type]  # models are modules

    def encode(self, src: Tensor, src_mask: Tensor | None) -> tuple[Any, ...]:
        """Encode src (B, S) with src_mask (B, S) by every member."""
        return tuple(member.encode(src, src_mask) for member in self.members)

    def init_state(self, memory: tuple[Any, ...], beam: int, capacity: int) -> tuple[Any, ...]:
        """Build the states before the first token; arguments as in ``compare.protocol``."""
        parts = zip(self.members, memory, strict=True)
        return tuple(member.init_state(part, beam, capacity) for member, part in parts)

    def step(
        self, tokens: Tensor, state: tuple[Any, ...], memory: tuple[Any, ...]
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """Decode tokens (B, K): the logarithm of the mean probabilities (B, K, V), and the next states."""
        logps, states = [], []
        for member, part, source in zip(self.members, state, memory, strict=True):
            logits, next_state = member.step(tokens, part, source)
            logps.append(log_probabilities(logits))
            states.append(next_state)
        return mean_probability(logps), tuple(states)

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Return no weights: those of different members do not compare."""
        return {}


def mean_probability(logps: Sequence[Tensor]) -> Tensor:
    """Return log(1/M sum_m exp(logps[m])) of M tensors of one shape."""
    return torch.stack(list(logps)).logsumexp(dim=0) - math.log(len(logps))


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from compare.fast import best_continuations, stable_topk
