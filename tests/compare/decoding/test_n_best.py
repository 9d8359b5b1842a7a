"""Lists of the N best hypotheses, against a naive search with lists; damaged logits."""

import math
from pathlib import Path

import pytest
import torch

import compare.decoding.beams
from compare import load_model
from compare.decoding.beams import SpecialIds
from compare.decoding.length_penalty import LengthPenalty
from compare.decoding.search import Hypothesis, generate, search_n_best
from tests.kits.search import (
    EOS,
    SENTENCES,
    TableModel,
    ended_by_naive_search,
    inputs,
    random_limits,
    random_model,
    run,
    same,
    tied_model,
)


def n_best(model: TableModel, limits: list[int], beam: int, number: int, alpha: float, rows=None, width=1):
    options = {"beam_size": beam, "n_best": number, "penalty": LengthPenalty(alpha)}
    return search_n_best(model, **inputs(limits, rows, width), **options)


def naive(model: TableModel, row: int, limit: int, beam: int, alpha: float) -> list[Hypothesis]:
    """All that end in the naive search, best first; ``sorted`` is stable: of equal scores the earlier one."""
    return sorted(ended_by_naive_search(model, row, limit, beam, alpha), key=lambda each: -each.score)


def same_scores(
    model: TableModel, row: int, found: list[Hypothesis], expected: list[Hypothesis], alpha: float
) -> None:
    """The random table gives some sequences one probability, and rounding decides which of them are found."""
    for one, other in zip(found, expected, strict=True):
        ids = [*one.tokens, EOS]
        logp = math.fsum(model.logp(row, ids[:t])[token] for t, token in enumerate(ids))
        assert one.score == pytest.approx(logp / LengthPenalty(alpha).divisor(len(ids)), abs=1e-10)
        assert one.score == pytest.approx(other.score, abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("beam", "number"), [(1, 1), (3, 2), (3, 3), (5, 4)])
def test_the_lists_follow_the_documented_rule(beam: int, number: int, alpha: float, tied: bool):
    """So beams that close early lose nothing; and the first of a list is what the search for one finds."""
    model, limits = tied_model() if tied else random_model(), random_limits(most=6 if tied else 14)
    found = n_best(model, limits, beam, number, alpha)
    for row in range(SENTENCES):
        expected = naive(model, row, limits[row], beam, alpha)
        if tied:
            same(found[row], expected[:number])
        else:
            same_scores(model, row, found[row], expected[:number], alpha)
    best = run(model, limits, beam_size=beam, alpha=alpha)
    assert [several[0] for several in found] == best  # the scores bit for bit


def test_lists_differ_are_sorted_and_full():
    limits = random_limits()
    for limit, several in zip(limits, n_best(random_model(), limits, 4, 4, 0.6), strict=True):
        assert len(several) == (1 if limit == 0 else 4)
        assert len({tuple(each.tokens) for each in several}) == len(several)
        assert [each.score for each in several] == sorted((each.score for each in several), reverse=True)


@pytest.mark.parametrize("share", [0.0, 2.0])
def test_neighbours_and_leaving_the_batch_change_nothing(share: float, monkeypatch: pytest.MonkeyPatch):
    model, limits = random_model(), random_limits()
    together = n_best(model, limits, 3, 3, 1.0)
    monkeypatch.setattr(compare.decoding.beams, "COMPACT_SHARE", share)
    for row in range(0, SENTENCES, 7):
        (alone,) = n_best(model, [limits[row]], 3, 3, 1.0, [row], width=4)
        same(alone, together[row])
    for one, other in zip(n_best(model, limits, 3, 3, 1.0), together, strict=True):
        same(one, other)


@pytest.mark.parametrize("number", [0, 4])
def test_more_than_the_beam_is_refused(number: int):
    with pytest.raises(ValueError, match=r"n_best must be from 1 to beam_size \(3\)"):
        n_best(random_model(), [3] * SENTENCES, 3, number, 0.0)


def test_generate_searches_as_wide_as_it_must():
    model, limits = random_model(), random_limits()
    assert generate(model, **inputs(limits), n_best=3) == n_best(model, limits, 3, 3, 0.0)
    assert [several[0] for several in generate(model, **inputs(limits))] == run(model, limits)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("everywhere", [True, False])
def test_logits_without_a_softmax_are_an_error(beam: int, bad: float, everywhere: bool):
    """In one sentence of the batch is enough."""
    model = random_model()
    model.table[slice(None) if everywhere else 7] = bad
    for found in (
        lambda: run(model, random_limits(), beam_size=beam),
        lambda: n_best(model, random_limits(), beam, beam, 0.0),
    ):
        with pytest.raises(ValueError, match="scores are NaN"):
            found()


@pytest.mark.parametrize("beam", [1, 3])
def test_an_impossible_end_is_an_error(beam: int):
    model = random_model()
    model.table[7, :, EOS] = -math.inf
    with pytest.raises(ValueError, match="no translation ends"):
        run(model, random_limits(), beam_size=beam)
    with pytest.raises(ValueError, match="no translation ends"):
        n_best(model, random_limits(), beam, beam, 0.0)


def test_a_loaded_model_with_a_nan_is_an_error(finished: Path):
    translator = load_model(finished / "luong-seed1")
    with torch.no_grad():
        translator.model.output.weight[5] = math.nan
    for beam in (1, 3):
        with pytest.raises(ValueError, match="scores are NaN"):
            translator.translate(["dog", "red cat"], beam_size=beam)


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

        def step(self, tokens: torch.Tensor, state: torch.Tensor, memory: torch.Tensor):
            logp = torch.tensor([probabilities.get(token, 0.01) for token in range(6)]).log()
            return logp.expand(*tokens.shape, 6).clone(), state

    src = torch.ones(1, 2, dtype=torch.long)
    special = SpecialIds(pad=0, bos=1, eos=eos)
    (found,) = generate(Constant(), src, src > 0, limits=3, special=special, beam_size=5, n_best=5)
    low, middle, high = words
    assert [each.tokens for each in found] == [[], [high], [middle], [low], [high, high]]
    expected = [0.6, 0.2 * 0.6, 0.1 * 0.6, 0.08 * 0.6, 0.2 * 0.2 * 0.6]
    assert [math.exp(each.score) for each in found] == pytest.approx(expected, rel=1e-5)
