"""Search against hand-worked beams, a naive twin and all sequences there are; limits, ids and scores."""

import itertools
import math

import pytest
import torch

from compare.decoding.length_penalty import LengthPenalty, Normalization
from compare.decoding.search import Hypothesis
from tests.kits.search import (
    BOS,
    CODES,
    EOS,
    PAD,
    SENTENCES,
    TOKENS,
    UNK,
    A,
    B,
    TableModel,
    WrittenModel,
    naive,
    random_limits,
    random_model,
    run,
    same,
    tied_model,
)

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
@pytest.mark.parametrize("form", ["wu", "length"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])  # 3: what is found later would often win
@pytest.mark.parametrize("beam", [1, 2, 3, 4, 5])
def test_search_follows_the_documented_rule(beam: int, alpha: float, form: Normalization, eos: float) -> None:
    model, limits = random_model(eos=eos), random_limits()
    expected = [naive(model, row, limits[row], beam, alpha, form) for row in range(SENTENCES)]
    assert len({len(hypothesis.tokens) for hypothesis in expected}) > 3
    same(run(model, limits, beam_size=beam, alpha=alpha, form=form), expected)


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


@pytest.mark.parametrize("form", ["wu", "length"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(alpha: float, form: Normalization) -> None:
    model = random_model()
    model.table = model.table[:, :, :5].clone()  # words: UNK and A
    limit = 4
    expected = []
    for row in range(SENTENCES):
        every = []
        for length in range(limit + 1):
            for words in itertools.product((UNK, A), repeat=length):
                ids = (*words, EOS)
                logp = sum(model.logp(row, ids[:position])[token] for position, token in enumerate(ids))
                every.append(Hypothesis(list(words), logp / LengthPenalty(alpha, form).divisor(len(ids))))
        expected.append(max(every, key=lambda hypothesis: hypothesis.score))
    same(run(model, [limit] * SENTENCES, beam_size=32, alpha=alpha, form=form), expected)  # of 31 sequences
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
        logp = sum(model.logp(row, tokens[:t])[token] for t, token in enumerate([*tokens, EOS]))
        assert score == pytest.approx(logp, abs=1e-5)
