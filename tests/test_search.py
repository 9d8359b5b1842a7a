"""Search against hand-worked beams, a naive twin, all sequences there are, and itself in other batches."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import pytest
import torch
from torch import Tensor

import compare.search
from compare.protocol import keep, select
from compare.search import Hypothesis, SpecialIds, length_penalty, search

PAD, UNK, BOS, EOS, A, B = range(6)
SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
SENTENCES, CODES, TOKENS = 50, 97, 12
Number = TypeVar("Number", int, Tensor)


class Prefixes:
    """A cache that is no tensor: it holds what each hypothesis has read, and counts what is asked of it."""

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
    """(B, K): what has been read, as a number below CODES."""
    cache: tuple[Prefixes]


class TableModel:
    """Logits looked up by the sentence and by a number that the whole prefix makes.

    ``table`` is (sentences, codes, V). A sentence's only source token is its place in the table.
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
        for place in range(cache.read + 1):
            read = self._next(read, cache.tokens[:, :, place])
        assert torch.equal(read, code)  # tensor and object went the same way
        cache = Prefixes(cache.tokens, cache.read + 1, self.calls)
        return self.table[memory[0].unsqueeze(1), code], State(code, (cache,))

    def logp(self, sentence: int, prefix: Sequence[int]) -> list[float]:
        """The log-probabilities after BOS and ``prefix``, for the slow twins."""
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


class WrittenModel(TableModel):
    """A model of one sentence that follows written probabilities, {prefix: {token: probability}}."""

    def __init__(self, written: dict[tuple[int, ...], dict[int, float]], size: int) -> None:
        table = torch.full((1, CODES, size), float("-inf"), dtype=torch.float64)
        table[:, :, EOS] = 0.0
        super().__init__(table)
        for prefix, row in written.items():
            self.write(prefix, row)

    def write(self, prefix: tuple[int, ...], row: dict[int, float]) -> None:
        values = [row.get(token, 0.0) for token in range(self.table.size(2))]
        self.table[0, self.code(prefix)] = torch.tensor(values, dtype=torch.float64).log()


def random_model(*, eos: float = -0.5, seed: int = 2) -> TableModel:
    """Sharp random tables with a rare end; padding and BOS would often be the best."""
    generator = torch.Generator().manual_seed(seed)
    table = 2.0 * torch.randn(SENTENCES, CODES, TOKENS, generator=generator, dtype=torch.float64)
    table[:, :, [PAD, BOS]] += 1.0
    table[:, :, EOS] += eos
    return TableModel(table)


def tied_model(tokens: int = 40, seed: int = 1) -> TableModel:
    """Tables whose log-probabilities are -98, -99 and -100 exactly, so that scores tie all the time.

    Padding takes all the probability: exp(-98) is lost beside 1, so that the normaliser is 100 sharp.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(0, 3, (SENTENCES, CODES, tokens), generator=generator).double()
    table[:, :, EOS] = torch.randint(0, 3, (SENTENCES, CODES), generator=generator).double()
    table[:, :, PAD] = 100.0
    return TableModel(table)


def run(
    model: TableModel, limits: Sequence[int], rows: Sequence[int] | None = None, width: int = 1, **options
) -> list[Hypothesis]:
    """Search the sentences ``rows`` with sources padded to ``width``."""
    rows = range(len(limits)) if rows is None else rows
    src = torch.full((len(rows), width), 77)  # masked: whatever stands there must not matter
    src[:, 0] = torch.tensor(rows)
    mask = torch.zeros(src.shape, dtype=torch.bool)
    mask[:, 0] = True
    return search(model, src, mask, limits=torch.tensor(limits), special=SPECIAL, **options)


def naive(model: TableModel, sentence: int, limit: int, beam: int, alpha: float) -> Hypothesis:
    """The documented rule, for one sentence, with lists.

    That a sentence closes once nothing can pass its best is left out: it may save time, not change results.
    """
    opened: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[Hypothesis] = []
    for time in range(limit + 1):
        found = []
        for parent, (score, prefix) in enumerate(opened):
            for token, logp in enumerate(model.logp(sentence, prefix)):
                if token not in (PAD, BOS) and (token == EOS or time < limit):
                    found.append((-(score + logp), parent, token))  # sorted: ties to the lowest
        found = sorted(found)[: 2 * beam]
        penalty = ((5 + time + 1) / 6) ** alpha
        for negated, parent, token in found[:beam]:
            if token == EOS:
                ended.append(Hypothesis(list(opened[parent][1]), -negated / penalty))
        if len(ended) >= beam:
            break
        goes_on = [entry for entry in found if entry[2] != EOS][:beam]
        opened = [(-negated, (*opened[parent][1], token)) for negated, parent, token in goes_on]
    return max(ended, key=lambda hypothesis: hypothesis.score)


def same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis], tolerance: float = 1e-12) -> None:
    assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=tolerance, rel=tolerance)


def random_limits(seed: int = 0, most: int = 14) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, most + 1, (SENTENCES,), generator=generator).tolist()


# Greedy: A (.56), then B (.65 > .35), then the end: A B, .56 * .65 = .364.
# Beam 2: A .56, B .40; the end (.04) is third and does not count.
#         B-end .38, A-B .364, A-end .196, B-A .02: B has ended, A-end is third and does not count.
#         alpha 0: A B has .364 < .38 already and cannot pass B any more: B.
#         alpha 1: B has log(.38) / (7/6) = -0.829, A B at its end log(.364) / (8/6) = -0.758: A B.
# Limit 1: greedy must end after A: .56 * .35 = .196; beam 2 has B-end .38. Limit 0: the end at once, .04.
WRITTEN = {(): {A: 0.56, B: 0.40, EOS: 0.04}, (A,): {B: 0.65, EOS: 0.35}, (B,): {EOS: 0.95, A: 0.05}}


@pytest.mark.parametrize(
    ("beam", "alpha", "limit", "tokens", "score", "steps"),
    [
        (1, 0.0, 3, [A, B], math.log(0.364), 3),
        (2, 0.0, 3, [B], math.log(0.38), 2),
        (2, 1.0, 3, [A, B], math.log(0.364) / (8 / 6), 3),
        (1, 0.0, 1, [A], math.log(0.196), 2),
        (1, 1.0, 1, [A], math.log(0.196) / (7 / 6), 2),
        (2, 0.0, 1, [B], math.log(0.38), 2),
        (1, 0.0, 0, [], math.log(0.04), 1),
        (2, 1.0, 0, [], math.log(0.04), 1),
    ],
)
def test_beams_worked_out_by_hand(
    beam: int, alpha: float, limit: int, tokens: list[int], score: float, steps: int
) -> None:
    model = WrittenModel(WRITTEN, size=6)
    (found,) = run(model, [limit], beam_size=beam, alpha=alpha)
    assert found.tokens == tokens
    assert found.score == pytest.approx(score, abs=1e-12)
    assert len(model.rows) == steps


@pytest.mark.parametrize("eos", [-0.5, 1.5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])  # 3: what is found later would often win
@pytest.mark.parametrize("beam", [1, 2, 3, 4, 5])
def test_search_follows_the_documented_rule(beam: int, alpha: float, eos: float) -> None:
    model, limits = random_model(eos=eos), random_limits()
    expected = [naive(model, row, limits[row], beam, alpha) for row in range(SENTENCES)]
    assert len({len(hypothesis.tokens) for hypothesis in expected}) > 3
    same(run(model, limits, beam_size=beam, alpha=alpha), expected)


def test_the_random_tables_tell_beams_and_penalties_apart() -> None:
    """Otherwise the test above could not see a wrong beam or a wrong alpha."""
    model, limits = random_model(), random_limits()
    settings = [(1, 0.0), (2, 0.0), (3, 0.0), (5, 0.0), (5, 0.6), (5, 1.0)]
    runs = [
        [hypothesis.tokens for hypothesis in run(model, limits, beam_size=beam, alpha=alpha)]
        for beam, alpha in settings
    ]
    for one, other in itertools.pairwise(runs):
        assert sum(a != b for a, b in zip(one, other, strict=True)) >= 3


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("beam", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_go_to_the_lowest_id(beam: int, alpha: float, dtype: torch.dtype) -> None:
    model, limits = tied_model(), random_limits(most=4)
    expected = [naive(model, row, limits[row], beam, alpha) for row in range(SENTENCES)]
    model.table = model.table.to(dtype)
    same(run(model, limits, beam_size=beam, alpha=alpha), expected, 1e-6)


def test_equal_logits_give_the_first_word() -> None:
    table = torch.zeros(1, CODES, 1000)
    table[:, :, EOS] = -1.0
    (found,) = run(TableModel(table), [4])
    assert found.tokens == [UNK] * 4


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(alpha: float) -> None:
    model = random_model()
    model.table = model.table[:, :, :5].clone()  # words: UNK and A
    limit = 4
    expected = []
    for row in range(SENTENCES):
        every = []
        for length in range(limit + 1):
            for words in itertools.product((UNK, A), repeat=length):
                ids = (*words, EOS)
                logp = sum(model.logp(row, ids[:place])[token] for place, token in enumerate(ids))
                every.append(Hypothesis(list(words), logp / length_penalty(len(ids), alpha)))
        expected.append(max(every, key=lambda hypothesis: hypothesis.score))
    same(run(model, [limit] * SENTENCES, beam_size=32, alpha=alpha), expected)  # of 31 sequences
    assert len({tuple(hypothesis.tokens) for hypothesis in expected}) > 5


def test_beam_1_is_the_argmax_loop() -> None:
    model, limits = random_model(), random_limits()
    for row, found in enumerate(run(model, limits, alpha=1.0)):
        prefix, total = [], 0.0
        while True:
            logp = model.logp(row, prefix)
            words = [token for token in range(TOKENS) if token not in (PAD, BOS)]
            best = EOS if len(prefix) == limits[row] else max(words, key=lambda token: logp[token])
            total += logp[best]
            if best == EOS:
                break
            prefix.append(best)
        assert found.tokens == prefix
        assert found.score == pytest.approx(total * 6 / (6 + len(prefix)), abs=1e-12)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_result_does_not_depend_on_the_batch(beam: int, tied: bool) -> None:
    model, limits = tied_model() if tied else random_model(), random_limits()
    together = run(model, limits, beam_size=beam, alpha=0.6)
    alone = [run(model, [limits[row]], [row], beam_size=beam, alpha=0.6)[0] for row in range(SENTENCES)]
    same(alone, together)
    order = torch.randperm(SENTENCES, generator=torch.Generator().manual_seed(2)).tolist()
    shuffled = run(model, [limits[row] for row in order], order, beam_size=beam, alpha=0.6)
    same(shuffled, [together[row] for row in order])
    beside = run(model, [*limits, 30, 0], [*range(SENTENCES), 0, 1], width=5, beam_size=beam, alpha=0.6)
    same(beside[:SENTENCES], together)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.8, 2.0])
def test_leaving_the_batch_changes_nothing(share: float, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.search, "COMPACT_SHARE", share)
    model, limits = random_model(), random_limits()
    same(run(model, limits, beam_size=beam), [naive(model, i, limits[i], beam, 0) for i in range(SENTENCES)])
    assert (model.rows[-1] < SENTENCES) == (model.calls["keep"] > 0) == (share > 0)


@pytest.mark.parametrize("beam", [1, 2])
def test_finished_sentences_leave_the_batch(beam: int) -> None:
    # No sentence ends before its limit, 0 to 9. Still searched after each step, of the rows there are:
    # 9/10, 8/10, 7/10 (cut to 7), 6/7, 5/7 (5), 4/5, 3/5 (3), 2/3 (2), 1/2 (1), 0/1.
    model = random_model(eos=-200.0)
    run(model, list(range(10)), beam_size=beam)
    assert model.rows == [10, 10, 10, 7, 7, 5, 5, 3, 2, 1]
    assert model.calls == {"keep": 5} | ({"select": 9} if beam > 1 else {})


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 1), (1.0, 5)])
def test_a_sentence_closes_once_nothing_can_pass_its_best(alpha: float, steps: int) -> None:
    # It may end at once with .6; the rest, .4, halves with each word and never ends. By alpha 1 that rest
    # could reach log(p) / ((5 + 31) / 6), which passes log(.6) while p > .6 ** 6 = .047: .4, .2, .1 and .05.
    model = WrittenModel({}, size=6)
    model.table[:] = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.5, 0.5]).log()
    model.write((), {EOS: 0.6, A: 0.4})
    (found,) = run(model, [30], beam_size=3, alpha=alpha)
    assert found.tokens == []
    assert found.score == pytest.approx(math.log(0.6), abs=1e-6)
    assert len(model.rows) == steps


def test_of_equal_scores_the_first_found_stays() -> None:
    # The end at once has -600 / (6 / 6); six words and the end have (5 * -200 - 100 - 100) / (12 / 6).
    table = torch.full((1, CODES, 6), -9999.0, dtype=torch.float64)
    table[:, :, PAD] = 0.0  # takes all the probability, so that these logits are log-probabilities
    model = TableModel(table)
    for length, logp in enumerate([-200.0] * 5 + [-100.0]):
        table[0, model.code([A] * length), A] = logp
    table[0, model.code([A] * 6), EOS] = -100.0
    for at_once, tokens in ((-600.0, []), (-600.0001, [A] * 6)):
        table[0, model.code([]), EOS] = at_once
        (found,) = run(model, [6], beam_size=2, alpha=1.0)
        assert found == Hypothesis(tokens, -600.0)


def test_no_sentence_closes_before_a_slightly_better_end() -> None:
    # The empty translation has log(.5); A, whose end is certain, is better by one part in 10 ** 9.
    share = math.exp(math.log(0.5) * (1 - 1e-9) * 7 / 6)
    model = WrittenModel({(): {EOS: 0.5, A: share, B: 0.5 - share}}, size=6)
    (found,) = run(model, [1], beam_size=2, alpha=1.0)
    assert found.tokens == [A]


def test_the_special_ids_never_come_out() -> None:
    model = random_model()
    model.table[:, :, [PAD, BOS]] += 50.0
    for beam in (1, 4):
        found = run(model, [8] * SENTENCES, beam_size=beam)
        assert all({PAD, BOS, EOS}.isdisjoint(hypothesis.tokens) for hypothesis in found)
        assert any(hypothesis.tokens for hypothesis in found)


@pytest.mark.parametrize("beam", [1, 3])
def test_limit_0_gives_the_empty_translation(beam: int) -> None:
    model = random_model()
    for limits in ([0] * SENTENCES, [0, 7] * (SENTENCES // 2)):
        found = run(model, limits, beam_size=beam, alpha=1.0)
        for row in range(0, SENTENCES, 2):
            assert found[row].tokens == []
            assert found[row].score == pytest.approx(model.logp(row, [])[EOS], abs=1e-12)


def test_limits_hold_for_each_sentence() -> None:
    limits = random_limits(most=20)
    for beam in (1, 3):
        found = run(random_model(eos=-200.0), limits, beam_size=beam)
        assert [len(hypothesis.tokens) for hypothesis in found] == limits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_of_narrow_logits_are_fp32(dtype: torch.dtype) -> None:
    model = random_model()
    model.table = model.table.to(dtype)
    found = run(model, [20] * SENTENCES, beam_size=2)
    model.table = model.table.float()
    assert found == run(model, [20] * SENTENCES, beam_size=2)
    for row, (tokens, score) in enumerate(found):
        logp = sum(model.logp(row, tokens[:place])[token] for place, token in enumerate([*tokens, EOS]))
        assert score == pytest.approx(logp, abs=1e-5)


def test_the_logits_stay_as_the_model_made_them() -> None:
    model = random_model()
    before = model.table.clone()
    model.step = lambda tokens, state, memory: (model.table[: len(tokens), :1], state)
    run(model, [2] * SENTENCES)
    assert torch.equal(model.table, before)


def test_the_length_penalty_is_that_of_the_paper() -> None:
    """Wu et al. 2016, equation 14: (5 + |Y|) ** alpha / (5 + 1) ** alpha."""
    for length, alpha in itertools.product((1, 2, 7, 50), (0.0, 0.2, 0.6, 1.0)):
        expected = (5 + length) ** alpha / (5 + 1) ** alpha
        assert length_penalty(length, alpha) == pytest.approx(expected, rel=1e-14)
        tensor = length_penalty(torch.tensor([length, 1]), alpha)
        assert torch.as_tensor(tensor).tolist() == pytest.approx([expected, 1.0], rel=1e-6)
    assert length_penalty(7, 1.0) == 2.0


def test_select_and_keep_reach_every_leaf() -> None:
    # Value 100 b + 10 k: sentence b, hypothesis k. parents[b, k] may differ by sentence and repeat.
    base = 100 * torch.arange(2).view(2, 1) + 10 * torch.arange(3)
    wide = base.view(2, 3, 1, 1) + torch.arange(4).view(1, 1, 2, 2)
    calls: Counter[str] = Counter()
    tree = State(base, (Prefixes(wide, 1, calls), (wide,)))
    chosen = select(tree, torch.tensor([[2, 0, 0], [1, 1, 2]]))
    expected = torch.tensor([[20, 0, 0], [110, 110, 120]])
    assert type(chosen) is State
    assert type(chosen.cache) is tuple
    assert chosen.code.equal(expected)
    for leaf in (chosen.cache[0].tokens, chosen.cache[1][0]):
        assert leaf.equal(expected.view(2, 3, 1, 1) + torch.arange(4).view(1, 1, 2, 2))
    kept = keep(tree, torch.tensor([1]))
    assert type(kept) is State
    assert kept.code.equal(base[1:])
    assert kept.cache[0].tokens.equal(wide[1:])
    assert kept.cache[1][0].equal(wide[1:])
    assert calls == {"select": 1, "keep": 1}
