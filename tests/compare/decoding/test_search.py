"""Search against hand-worked beams, a naive twin and all sequences there are; batches and closing."""

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import compare.decoding.search
from compare import fast
from compare.config.sections import DecodeConfig
from compare.decoding.search import (
    Hypothesis,
    LengthPenalty,
    Normalization,
    SpecialIds,
    best_continuations,
    length_penalties,
    search,
    search_all,
)
from compare.decoding.translator import generate
from tests.kits.search import (
    BOS,
    CODES,
    EOS,
    PAD,
    SENTENCES,
    A,
    B,
    TableModel,
    inputs,
    random_limits,
    random_model,
    same,
)


class WrittenModel(TableModel):
    """A model of one sentence with given probabilities, {prefix: {token: probability}}."""

    def __init__(self, written: dict[tuple[int, ...], dict[int, float]], size: int) -> None:
        table = torch.full((1, CODES, size), float("-inf"), dtype=torch.float64)
        table[:, :, EOS] = 0.0
        super().__init__(table)
        for prefix, row in written.items():
            self.write(prefix, row)

    def write(self, prefix: tuple[int, ...], row: dict[int, float]) -> None:
        values = [row.get(token, 0.0) for token in range(self.table.size(2))]
        self.table[0, self.code(prefix)] = torch.tensor(values, dtype=torch.float64).log()


def tied_model(tokens: int = 40, seed: int = 1) -> TableModel:
    """Build a table whose log-probabilities are -98, -99 and -100 exactly, so that scores tie all the time.

    Padding takes all the probability: exp(-98) is lost beside 1, so that the normaliser is 100 sharp.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(0, 3, (SENTENCES, CODES, tokens), generator=generator).double()
    table[:, :, EOS] = torch.randint(0, 3, (SENTENCES, CODES), generator=generator).double()
    table[:, :, PAD] = 100.0
    return TableModel(table)


def run(
    model: TableModel,
    limits: Sequence[int],
    rows: Sequence[int] | None = None,
    width: int = 1,
    *,
    alpha: float = 0.0,
    form: Normalization = "wu",
    beam_size: int = 1,
) -> list[Hypothesis]:
    """Search the sentences ``rows`` with sources padded to ``width``."""
    penalty = LengthPenalty(alpha, form)
    return search(model, **inputs(limits, rows, width), beam_size=beam_size, penalty=penalty)


def run_all(
    model: TableModel, limits: Sequence[int], penalties: Sequence[LengthPenalty], **options: int
) -> list[list[list[Hypothesis]]]:
    """Search every sentence with all ``penalties`` at once."""
    return search_all(model, **inputs(limits), penalties=penalties, **options)


def naive(
    model: TableModel, sentence: int, limit: int, beam: int, alpha: float, form: str = "wu"
) -> Hypothesis:
    """Search one sentence by the documented rule, with lists; returns the best that has ended."""
    return max(
        ended_by_naive_search(model, sentence, limit, beam, alpha, form),
        key=lambda hypothesis: hypothesis.score,
    )


def ended_by_naive_search(
    model: TableModel, sentence: int, limit: int, beam: int, alpha: float, form: str = "wu"
) -> list[Hypothesis]:
    """Return all hypotheses that end in the naive search, in the order in which they end.

    Closing a sentence once nothing can exceed its best hypothesis is left out: it must not change results.
    """
    opened: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[Hypothesis] = []
    for time in range(limit + 1):
        candidates = []
        for parent, (score, prefix) in enumerate(opened):
            for token, logp in enumerate(model.logp(sentence, prefix)):
                if token not in (PAD, BOS) and (token == EOS or time < limit):
                    candidates.append((-(score + logp), parent, token))  # sorted: ties to the lowest
        candidates = sorted(candidates)[: 2 * beam]
        length = time + 1  # the end is counted
        penalty = ((5 + length) / 6) ** alpha if form == "wu" else length**alpha
        for negated, parent, token in candidates[:beam]:
            if token == EOS:
                ended.append(Hypothesis(list(opened[parent][1]), -negated / penalty))
        if len(ended) >= beam:
            break
        continued = [entry for entry in candidates if entry[2] != EOS][:beam]
        opened = [(-negated, (*opened[parent][1], token)) for negated, parent, token in continued]
    return ended


GRID = length_penalties(DecodeConfig(length_penalties=(0.0, 0.2, 1.0, 3.0), length_normalization="both"))
"""3: what is found later would often win."""

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
        (1, 1.0, 1, [A], math.log(0.196) / (7 / 6), 2),
        (2, 0.0, 1, [B], math.log(0.38), 2),
        (1, 0.0, 0, [], math.log(0.04), 1),
        (2, 1.0, 0, [], math.log(0.04), 1),
    ],
)
def test_beams_worked_out_by_hand(
    beam: int, alpha: float, limit: int, tokens: list[int], score: float, steps: int
):
    model = WrittenModel(WRITTEN, size=6)
    (best,) = run(model, [limit], beam_size=beam, alpha=alpha)
    assert best.tokens == tokens
    assert best.score == pytest.approx(score, abs=1e-12)
    assert len(model.rows) == steps


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_search_follows_the_documented_rule(beam: int):
    """One search for all penalties and one for each alone, which closes earlier."""
    model, limits = random_model(), random_limits()
    together = run_all(model, limits, GRID, beam_size=beam)
    for penalty, lists in zip(GRID, together, strict=True):
        hypotheses = [best for (best,) in lists]
        twins = [naive(model, row, limits[row], beam, *astuple(penalty)) for row in range(SENTENCES)]
        same(hypotheses, twins)
        alone = run(model, limits, beam_size=beam, alpha=penalty.alpha, form=penalty.normalization)
        same(hypotheses, alone)
    kinds = {tuple(tuple(best.tokens) for (best,) in lists) for lists in together}
    assert len(kinds) > (4 if beam > 1 else 0)  # otherwise equality would show nothing


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("beam", "number"), [(3, 2), (3, 3), (5, 4)])
def test_lists_of_the_best_follow_it_too(beam: int, number: int, tied: bool):
    """Beams that close early lose nothing, and the first of a list is what the search for one finds."""
    model, limits = tied_model() if tied else random_model(), random_limits(most=6 if tied else 14)
    for penalty, lists in zip(GRID, run_all(model, limits, GRID, beam_size=beam, n_best=number), strict=True):
        best = run(model, limits, beam_size=beam, alpha=penalty.alpha, form=penalty.normalization)
        same([several[0] for several in lists], best)
        for row, hypotheses in enumerate(lists):
            ended = ended_by_naive_search(model, row, limits[row], beam, *astuple(penalty))
            expected = sorted(ended, key=lambda one: -one.score)[:number]  # ties: the earlier one
            if tied:
                same(hypotheses, expected)
                continue
            # The random table gives some sequences one probability, and rounding decides which are found.
            assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == len(hypotheses)
            for one, other in zip(hypotheses, expected, strict=True):
                ids = [*one.tokens, EOS]
                logp = math.fsum(model.logp(row, ids[:t])[token] for t, token in enumerate(ids))
                assert one.score == pytest.approx(logp / penalty.divisor(len(ids)), abs=1e-10)
                assert one.score == pytest.approx(other.score, abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("beam", [1, 3])
def test_ties_go_to_the_lowest_id(beam: int):
    model, limits = tied_model(), random_limits(most=4)
    expected = [
        [naive(model, row, limits[row], beam, *astuple(form)) for row in range(SENTENCES)] for form in GRID
    ]
    model.table = model.table.float()
    for lists, twins in zip(run_all(model, limits, GRID, beam_size=beam), expected, strict=True):
        same([best for (best,) in lists], twins, 1e-6)


@pytest.mark.parametrize("beam", [1, 3])
def test_limits_hold_for_each_sentence_and_special_ids_never_come_out(beam: int):
    limits = random_limits(most=20)
    model = random_model(eos=-200.0)
    model.table[:, :, [PAD, BOS]] += 50.0
    hypotheses = run(model, limits, beam_size=beam)
    assert [len(hypothesis.tokens) for hypothesis in hypotheses] == limits
    assert all({PAD, BOS, EOS}.isdisjoint(hypothesis.tokens) for hypothesis in hypotheses)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_of_narrow_logits_are_fp32(dtype: torch.dtype):
    model = random_model()
    model.table = model.table.to(dtype)
    hypotheses = run(model, [20] * SENTENCES, beam_size=2)
    model.table = model.table.float()
    assert hypotheses == run(model, [20] * SENTENCES, beam_size=2)


# --- batches


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_result_does_not_depend_on_the_batch(beam: int, tied: bool):
    model, limits = tied_model() if tied else random_model(), random_limits()
    together = run(model, limits, beam_size=beam, alpha=0.6)
    alone = [run(model, [limits[row]], [row], beam_size=beam, alpha=0.6)[0] for row in range(SENTENCES)]
    same(alone, together)
    order = torch.randperm(SENTENCES, generator=torch.Generator().manual_seed(2)).tolist()
    shuffled = run(model, [limits[row] for row in order], order, beam_size=beam, alpha=0.6)
    same(shuffled, [together[row] for row in order])
    beside = run(model, [*limits, 30, 0], [*range(SENTENCES), 0, 1], width=5, beam_size=beam, alpha=0.6)
    same(beside[:SENTENCES], together)


@pytest.mark.parametrize("beam", [1, 2])
def test_finished_sentences_leave_the_batch(beam: int):
    # No sentence ends before its limit, 0 to 9. Still searched after each step, of the rows there are:
    # 9/10, 8/10, 7/10 (cut to 7), 6/7, 5/7 (5), 4/5, 3/5 (3), 2/3 (2), 1/2 (1), 0/1.
    model = random_model(eos=-200.0)
    run(model, list(range(10)), beam_size=beam)
    assert model.rows == [10, 10, 10, 7, 7, 5, 5, 3, 2, 1]
    assert model.calls == {"keep": 5} | ({"select": 9} if beam > 1 else {})


class CountedReads(TorchDispatchMode):
    """Counts the operations whose result the host must know, for which it would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = ("item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select")
        indexed = func.overloadpacket.__name__.startswith("index") and any(
            part is not None and part.dtype is torch.bool
            for part in (args[1] if isinstance(args[1], (tuple, list)) else ())
        )
        self.count += indexed or func.overloadpacket.__name__ in names
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_an_asynchronous_device_finds_the_same_and_is_waited_for_every_8_steps(
    beam: int, tied: bool, monkeypatch: pytest.MonkeyPatch
):
    model, limits = tied_model() if tied else random_model(), [*random_limits()[:-1], 40]
    expected = run(model, limits, beam_size=beam, alpha=0.6)
    monkeypatch.setattr(compare.decoding.search, "is_synchronous", lambda device: False)
    monkeypatch.setattr(fast, "sorts_all", lambda values: True)
    same(run(model, limits, beam_size=beam, alpha=0.6), expected)
    with CountedReads() as reads:
        run(random_model(eos=-200.0), [40] * SENTENCES, beam_size=beam)
    # The largest limit; the open sentences after steps 8, 16, 24, 32, 40, 41; three reads to drop them.
    assert reads.count == 1 + 6 + 3


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 1), (1.0, 5)])
def test_a_sentence_closes_once_nothing_can_pass_its_best(alpha: float, steps: int):
    # It may end at once with .6; the rest, .4, halves with each word and never ends. By alpha 1 that rest
    # could reach log(p) / ((5 + 31) / 6), which passes log(.6) while p > .6 ** 6 = .047: .4, .2, .1 and .05.
    model = WrittenModel({}, size=6)
    model.table[:] = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.5, 0.5]).log()
    model.write((), {EOS: 0.6, A: 0.4})
    (best,) = run(model, [30], beam_size=3, alpha=alpha)
    assert best.tokens == []
    assert best.score == pytest.approx(math.log(0.6), abs=1e-6)
    assert len(model.rows) == steps


def test_no_sentence_closes_before_a_slightly_better_end():
    # The empty translation has log(.5); A, whose end is certain, is better by one part in 10 ** 9.
    share = math.exp(math.log(0.5) * (1 - 1e-9) * 7 / 6)
    model = WrittenModel({(): {EOS: 0.5, A: share, B: 0.5 - share}}, size=6)
    (best,) = run(model, [1], beam_size=2, alpha=1.0)
    assert best.tokens == [A]


# --- models that are damaged or unusual


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("rows", [slice(None), 7])
def test_logits_that_no_translation_comes_from_are_an_error(beam: int, rows: slice | int):
    """In one sentence of the batch is enough."""
    model = random_model()
    for bad in (math.nan, math.inf):
        model.table[rows] = bad
        with pytest.raises(ValueError, match="scores are NaN"):
            run_all(model, random_limits(), GRID[:1], beam_size=beam, n_best=beam)
    model = random_model()
    model.table[rows, :, EOS] = -math.inf
    with pytest.raises(ValueError, match="no translation ends"):
        run(model, random_limits(), beam_size=beam)


def test_the_logits_stay_as_the_model_made_them():
    model = random_model()
    before = model.table.clone()
    model.step = lambda tokens, state, memory: (model.table[: len(tokens), :1], state)  # type: ignore[method-assign]
    run(model, [2] * SENTENCES)
    assert torch.equal(model.table, before)


@pytest.mark.parametrize("eos", [2, 5])
def test_few_words_and_an_end_that_is_the_last_id_are_no_difficulty(eos: int):
    """There are fewer continuations than hypotheses in a beam; every step has the same three words."""
    words = [token for token in range(2, 6) if token != eos]
    probabilities = dict(zip([eos, *words], (0.6, 0.08, 0.1, 0.2), strict=True))

    class Constant:
        def encode(self, src: torch.Tensor, src_mask: torch.Tensor) -> torch.Tensor:
            return src

        def init_state(self, memory: torch.Tensor, beam: int, capacity: int) -> torch.Tensor:
            return torch.zeros(len(memory), beam, 1)

        def step(self, tokens: torch.Tensor, state: torch.Tensor, memory: torch.Tensor) -> Any:
            logp = torch.tensor([probabilities.get(token, 0.01) for token in range(6)]).log()
            return logp.expand(*tokens.shape, 6).clone(), state

    src = torch.ones(1, 2, dtype=torch.long)
    special = SpecialIds(pad=0, bos=1, eos=eos)
    (hypotheses,) = generate(Constant(), src, src > 0, limits=3, special=special, n_best=5)  # type: ignore[arg-type]
    low, middle, high = words
    assert [hypothesis.tokens for hypothesis in hypotheses] == [[], [high], [middle], [low], [high, high]]
    expected = [0.6, 0.2 * 0.6, 0.1 * 0.6, 0.08 * 0.6, 0.2 * 0.2 * 0.6]
    assert [math.exp(hypothesis.score) for hypothesis in hypotheses] == pytest.approx(expected, rel=1e-5)


# --- parts


@pytest.mark.parametrize("size", [2, 63, 64, 65, 192, 517])
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("levels", [1, 3, 1_000_000])
def test_the_best_continuations_are_those_of_a_stable_sort(size: int, beam: int, levels: int):
    """With few levels nearly all are tied, inside blocks, between blocks and between hypotheses."""
    random = torch.Generator().manual_seed(size + beam + levels)
    for _ in range(5):
        logp = -torch.randint(0, levels, (4, beam, size), generator=random).double()
        scores = -torch.randint(0, levels, (4, beam), generator=random).double()
        count = min(2 * beam, beam * size)
        sums, parents, tokens = best_continuations(scores, logp, count)
        all_sums = (scores.unsqueeze(2) + logp).flatten(1)
        expected, position = all_sums.sort(dim=1, descending=True, stable=True)
        assert torch.equal(sums, expected[:, :count])
        assert torch.equal(parents * size + tokens, position[:, :count])


def test_impossible_continuations_come_last_and_are_still_in_the_vocabulary():
    never = float("-inf")
    logp = torch.full((2, 3, 70), never)
    logp[:, :, 68] = -1.0
    scores = torch.tensor([[0.0, never, never], [never, 0.0, -0.5]])
    sums, parents, tokens = best_continuations(scores, logp, 6)
    assert sums.tolist() == [[-1.0] + 5 * [never], [-1.0, -1.5] + 4 * [never]]
    assert (parents[0, 0], tokens[0, 0]) == (0, 68)
    assert parents[1, :2].tolist() == [1, 2]
    assert (tokens.max() < 70, parents.max() < 3) == (True, True)


def test_a_grid_of_both_forms_has_no_penalty_once():
    forms = ["0 (wu)", "0.2 (wu)", "1 (wu)", "3 (wu)", "0.2 (length)", "1 (length)", "3 (length)"]
    assert [str(penalty) for penalty in GRID] == forms
    config = DecodeConfig(length_penalties=(0.0, 0.5), length_normalization="length")
    assert length_penalties(config) == (LengthPenalty(0.0, "length"), LengthPenalty(0.5, "length"))
    for settings in ((-0.1, "wu"), (1.0, "Wu")):
        with pytest.raises(ValueError, match=r"alpha|normalization"):
            LengthPenalty(*settings)
