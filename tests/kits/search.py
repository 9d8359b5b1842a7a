"""Table-lookup models and a naive search over lists, shared by the tests of search."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from torch import Tensor

from compare.decoding.search import Hypothesis, SpecialIds

PAD, _, BOS, EOS, A, B = range(6)
SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
SENTENCES, CODES, TOKENS = 50, 97, 12
Number = TypeVar("Number", int, Tensor)


class Prefixes:
    """A cache that is not a tensor: holds the tokens read by each hypothesis, and counts method calls."""

    def __init__(self, tokens: Tensor, read: int, calls: Counter[str]) -> None:
        self.tokens, self.read, self.calls = tokens, read, calls

    def select(self, parents: Tensor) -> "Prefixes":
        self.calls["select"] += 1
        rows = torch.arange(len(parents)).unsqueeze(1)
        return Prefixes(self.tokens[rows, parents], self.read, self.calls)

    def keep(self, rows: Tensor) -> "Prefixes":
        self.calls["keep"] += 1
        return Prefixes(self.tokens[rows], self.read, self.calls)


class State(NamedTuple):
    code: Tensor
    """(B, K): hash of the tokens read, below CODES."""
    cache: tuple[Prefixes]


class TableModel:
    """Logits looked up by the sentence and a hash of the prefix.

    ``table`` is (sentences, codes, V). A sentence's only source token is its index in the table.
    """

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.calls: Counter[str] = Counter()
        self.rows: list[int] = []  # rows of each step

    def encode(self, src: Tensor, src_mask: Tensor) -> tuple[Tensor]:
        return ((src * src_mask).sum(dim=1),)

    def init_state(self, memory: tuple[Tensor], beam: int, capacity: int) -> State:
        shape = (len(memory[0]), beam)
        prefixes = Prefixes(torch.zeros((*shape, capacity), dtype=torch.long), 0, self.calls)
        return State(torch.zeros(shape, dtype=torch.long), (prefixes,))

    def step(self, tokens: Tensor, state: State, memory: tuple[Tensor]) -> tuple[Tensor, State]:
        (cache,) = state.cache
        self.rows.append(len(tokens))
        cache.tokens[:, :, cache.read] = tokens  # raises beyond the capacity
        code = self._next(state.code, tokens)
        read = torch.zeros_like(code)
        for position in range(cache.read + 1):
            read = self._next(read, cache.tokens[:, :, position])
        assert torch.equal(read, code)  # tensor and object were reordered alike
        cache = Prefixes(cache.tokens, cache.read + 1, self.calls)
        return self.table[memory[0].unsqueeze(1), code], State(code, (cache,))

    def logp(self, sentence: int, prefix: Sequence[int]) -> list[float]:
        """Compute the log-probabilities after BOS and ``prefix``, for the slow twins."""
        logits = self.table[sentence, self.code(prefix)].tolist()
        top = max(logits)
        norm = top + math.log(math.fsum(math.exp(value - top) for value in logits))
        return [value - norm for value in logits]

    def code(self, prefix: Sequence[int]) -> int:
        code = 0
        for token in (BOS, *prefix):
            code = self._next(code, token)
        return code

    def _next(self, code: Number, token: Number) -> Number:
        return (code * 31 + token * 7 + 1) % CODES


def random_model(*, eos: float = -0.5, seed: int = 2) -> TableModel:
    """Build a sharp random table with a rare EOS, in which padding and BOS would often be the best."""
    generator = torch.Generator().manual_seed(seed)
    table = 2.0 * torch.randn(SENTENCES, CODES, TOKENS, generator=generator, dtype=torch.float64)
    table[:, :, [PAD, BOS]] += 1.0
    table[:, :, EOS] += eos
    return TableModel(table)


def inputs(limits: Sequence[int], rows: Sequence[int] | None = None, width: int = 1) -> dict[str, Any]:
    """Arguments of a search of the sentences ``rows`` with sources padded to ``width``."""
    rows = range(len(limits)) if rows is None else rows
    src = torch.full((len(rows), width), 77)  # masked: any ids must do
    src[:, 0] = torch.tensor(rows)
    mask = torch.zeros(src.shape, dtype=torch.bool)
    mask[:, 0] = True
    return {"src": src, "src_mask": mask, "limits": torch.tensor(limits), "special": SPECIAL}


def same(hypotheses: Sequence[Hypothesis], expected: Sequence[Hypothesis], tolerance: float = 1e-12) -> None:
    assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in expected]
    for one, other in zip(hypotheses, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=tolerance, rel=tolerance)


def random_limits(seed: int = 0, most: int = 14) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, most + 1, (SENTENCES,), generator=generator).tolist()
