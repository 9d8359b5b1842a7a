"""Matched budgets: widths are solved for; a budget that cannot be met is an error."""

import tomllib
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.resolve import Run, resolve_model, resolve_models
from compare.config.sections import BudgetConfig, ModelConfig
from compare.experiment.budget import (
    FFN_RATIOS,
    GRID,
    MAX_FACTOR,
    SEARCHES,
    TOLERANCE,
    match_budget,
)
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run import run_experiment
from compare.models.presets import PRESETS
from compare.models.registry import ResolvedModel, build
from compare.report.result_table import render_table
from compare.system.log import Reporter
from tests.kits.common import first_run

MAY_CHANGE = {"d_model", "ffn_size", "hidden_size", "encoder_size", "attention_size"}
MAY_CHANGE |= {"embedding_size"}
SMALL = {"embedding_size": 128, "hidden_size": 192}
REFERENCE = ModelConfig(preset="bahdanau", label="reference", overrides=SMALL)
OTHERS = [
    name for name, preset in PRESETS.items() if not preset.paper_size and preset.model.task == "translation"
]
MATCHED = {
    (type(PRESETS[name].model.architecture), *PRESETS[name].model.widths()): (name, kind)
    for name, kind in zip(OTHERS, cycle(["params", "flops"]), strict=False)
}.values()
"""(preset, kind): one preset per family and widths, since the search for widths is the same."""
WITH_HEADS = [name for name in OTHERS if "num_heads" in PRESETS[name].model.settings()]
ONE_HEAD = {
    *("luong-dot", "luong-location", "location-aware", "coverage"),
    *("static", "static-factorised", "dynamic-factorised"),
}
"""Presets whose score has no form with several heads."""


@pytest.fixture(scope="module")
def prepared(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare_data(first_run(tiny_toml), tmp_path_factory.mktemp("encoded"))


def runs_of(tiny_toml: Path, *models: ModelConfig, **settings: object) -> list[Run]:
    budget = BudgetConfig(**settings)  # type: ignore[arg-type]
    return resolve_models(replace(load_experiment(tiny_toml), models=models, budget=budget))


def amount(kind: str, model: ModelConfig | ResolvedModel, prepared: PreparedData) -> float:
    """Counted in a model that was really made, or by the formula that is tested against torch's counter."""
    architecture = (resolve_model(model) if isinstance(model, ModelConfig) else model).architecture
    if kind == "flops":
        return prepared.training_flops(architecture)
    made = build(architecture, *(len(side) for side in prepared.vocabularies))
    return sum(parameter.numel() for parameter in made.parameters())


def as_large_as_the_reference(model: ResolvedModel, prepared: PreparedData, kind: str = "params") -> bool:
    return abs(amount(kind, model, prepared) / amount(kind, REFERENCE, prepared) - 1) <= TOLERANCE


def narrow_model(preset: str, **settings: int) -> ModelConfig:
    sizes = {"d_model": 128, "ffn_size": 384, **SMALL}
    small = {name: size for name, size in sizes.items() if name in PRESETS[preset].model.settings()}
    return ModelConfig(preset=preset, label="other", overrides={**small, **settings})


@pytest.mark.parametrize(("preset", "kind"), MATCHED)
def test_every_family_can_be_made_as_large_as_a_reference(
    preset: str, kind: str, tiny_toml: Path, prepared: PreparedData
):
    """Every width is in proportion and a multiple of 8; several heads may need a finer grid."""
    other = narrow_model(preset)
    first, second = match_budget(runs_of(tiny_toml, REFERENCE, other, match=kind), prepared)
    target = amount(kind, REFERENCE, prepared)
    assert first.model == resolve_model(REFERENCE)
    assert first.budget == BudgetConfig(match=kind, reference="reference", amount=target)
    assert replace(second.budget, changed="") == first.budget
    assert as_large_as_the_reference(second.model, prepared, kind)
    unmatched = resolve_model(other)
    before, after = unmatched.settings(), second.model.settings()
    assert {name for name in before if before[name] != after[name]} <= MAY_CHANGE
    assert second.model.width_multiple() >= (2 if unmatched.head_size() else GRID)
    factors = [width / before[name] for name, width in second.model.widths().items()]
    assert max(factors) / min(factors) <= SEARCHES[1][1] * 1.2  # 1.2: rounding of the smallest widths
    assert 1 / MAX_FACTOR <= factors[0] <= MAX_FACTOR
    if {"d_model", "ffn_size"} <= after.keys():
        low, high = FFN_RATIOS
        assert low <= after["ffn_size"] / after["d_model"] <= high


@pytest.mark.parametrize("preset", WITH_HEADS)
@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_the_number_of_heads_is_the_one_that_is_asked_for(
    preset: str, heads: int, tiny_toml: Path, prepared: PreparedData
):
    other = narrow_model(preset, num_heads=heads)
    if (preset in ONE_HEAD and heads > 1) or (preset == "gated-linear" and heads == 1):
        with pytest.raises(ValueError, match="num_heads"):
            resolve_model(other)
        return
    _, matched = match_budget(runs_of(tiny_toml, REFERENCE, other, match="params"), prepared)
    assert matched.model.settings()["num_heads"] == heads
    assert as_large_as_the_reference(matched.model, prepared)
    if (
        preset == "transformer" and heads < 8
    ):  # it can meet the budget with heads of the finest grid that is fast
        assert (matched.model.head_size() or 0) % GRID == 0


def test_the_head_of_a_model_without_projections_is_as_wide_as_the_model(
    tiny_toml: Path, prepared: PreparedData
):
    plain = {"d_model": 64, "ffn_size": 192, "num_heads": 1, "projections": "none"}
    other = ModelConfig(preset="transformer", label="other", overrides=plain)
    _, matched = match_budget(runs_of(tiny_toml, REFERENCE, other, match="params"), prepared)
    assert matched.model.settings()["num_heads"] == 1
    assert matched.model.settings()["d_model"] > 128
    assert as_large_as_the_reference(matched.model, prepared)


def test_a_budget_out_of_reach_says_how_near_it_comes(tiny_toml: Path, prepared: PreparedData):
    narrow = replace(REFERENCE, overrides={"embedding_size": 16, "hidden_size": 24})
    with pytest.raises(
        ValueError, match=r"models\.reference: cannot meet the budget of 1,000,000,000 params"
    ) as caught:
        match_budget(runs_of(tiny_toml, narrow, match="params", amount=1e9), prepared)
    wide = replace(narrow, overrides={"embedding_size": 16 * 16, "hidden_size": 4 * 24})
    off = amount("params", wide, prepared) / 1e9 - 1
    assert f"the nearest fit is hidden_size 96, embedding_size 256, {off:+.1%}" in str(caught.value)


def test_a_row_says_what_was_matched_and_how_closely(tiny_toml: Path, tmp_path: Path):
    folder = tmp_path / "run"
    settings = ["budget.match=params", "train.max_updates=4", "models.transformer.d_model=32"]
    experiment = load_experiment(tiny_toml, settings)
    first, second = run_experiment(experiment, folder, Reporter())
    assert (first.matched, first.matched_off) == ("params", 0)
    assert second.matched_off == pytest.approx(second.params / first.params - 1)
    assert abs(second.matched_off) <= TOLERANCE
    assert first.budget_changes is None
    assert second.budget_changes.startswith("d_model 32 -> ")
    assert f"Changed by the budget: transformer: {second.budget_changes}" in render_table([first, second])
    written = tomllib.loads((folder / "transformer-seed1" / "config.toml").read_text())
    assert written["budget"] == {
        "match": "params",
        "reference": "luong",
        "amount": float(first.params),
        "changed": second.budget_changes,
    }
    assert [row.matched_off for row in run_experiment(experiment, folder, Reporter())] == [
        0,
        second.matched_off,
    ]
