"""Length penalties against the papers, and one search for many against one search for each."""

import itertools
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.config.sections import DecodeConfig
from compare.decoding.length_penalty import NO_PENALTY, LengthPenalty, length_penalties
from compare.decoding.translator import Translator
from compare.results.trained_model import load_model
from tests.kits.search import SENTENCES, naive, random_limits, random_model, run, run_all, same, tied_model

BOTH = DecodeConfig(length_penalties=(0.0, 0.2, 0.6, 1.0, 1.5, 3.0), length_normalization="both")
GRID = length_penalties(BOTH)
LINES = ["dog", "old cat sees small red tree", "cat tree", "red dog sees", "", "tree tree tree tree", "dog"]


def test_the_divisors_are_those_of_the_papers():
    """Wu et al. 2016, equation 14: (5 + |Y|) ** alpha / (5 + 1) ** alpha; or |Y| ** alpha."""
    for length, alpha in itertools.product((1, 2, 7, 50), (0.0, 0.2, 0.6, 1.0)):
        wu, mean = LengthPenalty(alpha, "wu"), LengthPenalty(alpha, "length")
        assert wu.divisor(length) == pytest.approx((5 + length) ** alpha / (5 + 1) ** alpha, rel=1e-14)
        assert mean.divisor(length) == pytest.approx(length**alpha, rel=1e-14)
    assert (LengthPenalty(1.0, "wu").divisor(7), LengthPenalty(1.0, "length").divisor(7)) == (2.0, 7.0)
    assert NO_PENALTY.divisor(99) == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -0.1}, "must be at least 0, got -0.1"),
        ({"alpha": float("nan")}, "must be at least 0, got nan"),
        ({"normalization": "Wu"}, "must be one of wu, length, got 'Wu'"),
    ],
)
def test_what_is_no_penalty_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        LengthPenalty(**settings)


def test_a_grid_of_both_forms_has_no_penalty_once():
    assert [str(penalty) for penalty in GRID[:7]] == [
        *("0 (wu)", "0.2 (wu)", "0.6 (wu)", "1 (wu)", "1.5 (wu)", "3 (wu)", "0.2 (length)")
    ]
    assert len(GRID) == 11
    assert len(set(GRID)) == 11
    for form in ("wu", "length"):
        config = DecodeConfig(length_penalties=(0.0, 0.5), length_normalization=form)
        assert length_penalties(config) == (LengthPenalty(0.0, form), LengthPenalty(0.5, form))


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_one_search_for_all_penalties_finds_what_one_for_each_finds(beam: int):
    model, limits = random_model(), random_limits()
    together = run_all(model, limits, GRID, beam_size=beam)
    for penalty, found in zip(GRID, together, strict=True):
        alone = run(model, limits, beam_size=beam, alpha=penalty.alpha, form=penalty.normalization)
        assert found == alone
        same(found, [naive(model, row, limits[row], beam, *astuple(penalty)) for row in range(SENTENCES)])
    kinds = {tuple(tuple(hypothesis.tokens) for hypothesis in found) for found in together}
    assert len(kinds) > (6 if beam > 1 else 0)  # otherwise equality would show nothing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_are_decided_alike_under_every_penalty(dtype: torch.dtype):
    model, limits = tied_model(), random_limits(most=4)
    expected = [
        [naive(model, row, limits[row], 3, *astuple(each)) for row in range(SENTENCES)] for each in GRID
    ]
    model.table = model.table.to(dtype)
    for found, twin in zip(run_all(model, limits, GRID, beam_size=3), expected, strict=True):
        same(found, twin, 1e-6)


@pytest.fixture(scope="module", params=["luong-seed1", "transformer-seed1"])
def sharp(request: pytest.FixtureRequest, finished: Path) -> Translator:
    """In float64 and with larger logits, so that hypotheses differ and rounding decides none of them."""
    translator = load_model(finished / request.param)
    translator.model.double()
    with torch.no_grad():
        translator.model.output.weight.mul_(2.0)
    return translator


def test_the_translations_of_a_grid_are_those_of_each_point(sharp: Translator):
    before = sharp.penalty
    together = sharp.translate_all(LINES, GRID, beam_size=4)
    for penalty, found in zip(GRID, together, strict=True):
        sharp.penalty = penalty
        assert sharp.translate(LINES, beam_size=4) == found
        assert sharp.translate(LINES[::-1], beam_size=4) == found[::-1]
    sharp.penalty = before
    assert len(set(map(tuple, together))) > 1
    assert len({tuple(found) for found in sharp.translate_all(LINES, GRID, beam_size=1)}) == 1


def test_a_translator_without_a_choice_takes_the_smallest(sharp: Translator):
    translator = Translator(sharp.model, sharp.vocabularies, BOTH, sharp.device)
    assert translator.penalty == LengthPenalty(0.0, "wu")
    assert Translator(sharp.model, sharp.vocabularies, BOTH, sharp.device, GRID[4]).penalty == GRID[4]
