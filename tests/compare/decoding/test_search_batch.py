"""Search in batches: the same alone and together, and sentences that close and leave change nothing."""

import math
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import compare.decoding.beams
from compare.decoding.search import Hypothesis
from compare.protocol import keep, select
from tests.kits.search import (
    CODES,
    EOS,
    PAD,
    SENTENCES,
    A,
    B,
    Prefixes,
    State,
    TableModel,
    WrittenModel,
    naive,
    random_limits,
    random_model,
    run,
    same,
    tied_model,
)


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
    monkeypatch.setattr(compare.decoding.beams, "COMPACT_SHARE", share)
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


class CountedReads(TorchDispatchMode):
    """Counts the operations whose result the host must know, for which it would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
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
) -> None:
    model, limits = tied_model() if tied else random_model(), [*random_limits()[:-1], 40]
    expected = run(model, limits, beam_size=beam, alpha=0.6)
    for module in (compare.decoding.beams, compare.decoding.beams):
        monkeypatch.setattr(module, "is_synchronous", lambda device: False)
    same(run(model, limits, beam_size=beam, alpha=0.6), expected)
    with CountedReads() as reads:
        run(random_model(eos=-200.0), [40] * SENTENCES, beam_size=beam)
    # The largest limit; the open sentences after steps 8, 16, 24, 32, 40, 41; three reads to drop them.
    assert reads.count == 1 + 6 + 3


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


def test_the_logits_stay_as_the_model_made_them() -> None:
    model = random_model()
    before = model.table.clone()
    model.step = lambda tokens, state, memory: (model.table[: len(tokens), :1], state)
    run(model, [2] * SENTENCES)
    assert torch.equal(model.table, before)


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
