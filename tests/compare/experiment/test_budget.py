"""Matched budgets: widths and updates are solved for; a budget that cannot be met is an error."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compare.config.parse import load_experiment
from compare.config.resolve_model import resolve_model
from compare.config.run import Run, resolve_models
from compare.config.sections import BudgetConfig, ModelConfig
from compare.experiment import budget, run_all
from compare.experiment.budget import GRIDS, MAX_WIDTH_FACTOR, TOLERANCE, calibrate, match_budget
from compare.experiment.compute_result import training_flops
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run_all import run_experiment
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.models.resolved_model import ResolvedModel
from compare.system.progress import Reporter
from tests.kits.cli import Refusal

WIDTHS = ("hidden_size", "attention_size", "d_model", "ffn_size")
SMALL = {"embedding_size": 64, "hidden_size": 96}
REFERENCE = ModelConfig(preset="bahdanau", label="reference", overrides=SMALL)
OTHERS = [name for name, preset in PRESETS.items() if not preset.paper_size]


@pytest.fixture(scope="module")
def prepared(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare_data(load_experiment(tiny_toml), tmp_path_factory.mktemp("encoded"))


def runs_of(tiny_toml: Path, *models: ModelConfig, **settings: object) -> list[Run]:
    budget = BudgetConfig(**settings)  # type: ignore[arg-type]
    return resolve_models(replace(load_experiment(tiny_toml), models=models, budget=budget))


def amount(kind: str, model: ModelConfig | ResolvedModel, prepared: PreparedData) -> float:
    """Counted in a model that was really made, or by the formula that is tested against torch's counter."""
    architecture = (resolve_model(model) if isinstance(model, ModelConfig) else model).architecture
    if kind == "flops":
        return training_flops(architecture, prepared=prepared)
    made = build(architecture, *(len(side) for side in prepared.vocabularies))
    return sum(parameter.numel() for parameter in made.parameters())


@pytest.mark.parametrize("kind", ["params", "flops"])
@pytest.mark.parametrize("preset", OTHERS)
def test_every_preset_can_be_made_as_large_as_a_reference(
    kind: str, preset: str, tiny_toml: Path, prepared: PreparedData
):
    sizes = {"d_model": 64, "ffn_size": 128, **SMALL}
    small = {name: size for name, size in sizes.items() if name in PRESETS[preset].model.settings()}
    other = ModelConfig(preset=preset, label="other", overrides=small)
    first, second = match_budget(runs_of(tiny_toml, REFERENCE, other, match=kind), prepared, {})
    target = amount(kind, REFERENCE, prepared)
    assert first.model == resolve_model(REFERENCE)
    assert first.budget == second.budget == BudgetConfig(match=kind, reference="reference", amount=target)
    assert abs(amount(kind, second.model, prepared) / target - 1) <= TOLERANCE
    before, after = resolve_model(other).settings(), second.model.settings()
    assert {name for name in before if before[name] != after[name]} <= set(WIDTHS)
    for name in set(WIDTHS) & set(after):
        given = before[name] or before["hidden_size"]  # what attention_size is if left out
        assert after[name] is None or given // MAX_WIDTH_FACTOR <= after[name] <= given * MAX_WIDTH_FACTOR, (
            name
        )


def test_the_coarsest_grid_that_is_near_enough_wins(tiny_toml: Path, prepared: PreparedData):
    """A reference made of a multiple of 32 is met by it, where an odd width would be as near."""
    grown = replace(REFERENCE, overrides={**SMALL, "hidden_size": 160})
    target = amount("params", grown, prepared)
    (found,) = match_budget(runs_of(tiny_toml, REFERENCE, match="params", amount=target), prepared, {})
    assert found.model.settings()["hidden_size"] == 160
    assert 160 % GRIDS[1] == 0


def test_a_budget_out_of_reach_says_how_near_it_comes(tiny_toml: Path, prepared: PreparedData):
    with pytest.raises(
        ValueError, match=r"models\.reference: cannot meet the budget of 10,000,000 params"
    ) as caught:
        match_budget(runs_of(tiny_toml, REFERENCE, match="params", amount=1e7), prepared, {})
    wide = replace(REFERENCE, overrides={**SMALL, "hidden_size": 4 * 96, "attention_size": 4 * 96})
    off = amount("params", wide, prepared) / 1e7 - 1
    assert f"{off:+.1%} is the nearest" in str(caught.value)


def test_time_buys_updates(tiny_toml: Path, prepared: PreparedData):
    other = replace(REFERENCE, label="slow")
    whole = runs_of(tiny_toml, REFERENCE, other, match="time")
    first, second = match_budget(whole, prepared, {"reference": 0.2, "slow": 0.55})
    assert first.train.max_updates == 90
    assert second.train.max_updates == round(90 * 0.2 / 0.55)
    assert first.budget.amount == second.budget.amount == pytest.approx(18)
    given = [replace(run, budget=BudgetConfig(match="time", amount=11)) for run in whole]
    assert [e.train.max_updates for e in match_budget(given, prepared, {"reference": 0.2, "slow": 0.55})] == [
        55,
        20,
    ]
    given = [replace(run, budget=BudgetConfig(match="time", amount=0.1)) for run in whole]
    with pytest.raises(ValueError, match=r"one update takes 0\.55 s, more than the budget of 0\.10 s"):
        match_budget(given, prepared, {"reference": 0.1, "slow": 0.55})


def test_a_calibration_counts_tokens_as_training_does(
    tiny_toml: Path, prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    """A model that took 2 s per update of a whole epoch takes 2 s per update."""
    batches = list(prepared.stream.epoch(1))
    line = {
        "train_s": 2.0 * len(batches),
        "src_tokens": sum(batch.src_tokens for batch in batches),
        "tgt_tokens": sum(batch.tgt_tokens for batch in batches),
    }
    monkeypatch.setattr(budget, "_train_briefly", lambda run, prepared: [line])
    runs = runs_of(tiny_toml, REFERENCE, ModelConfig(preset="luong-dot", label="other"))
    seconds = calibrate(runs, prepared, {"other": 5.0})
    assert seconds == {"reference": pytest.approx(2.0), "other": 5.0}


def test_the_global_generator_is_left_alone(tiny_toml: Path, prepared: PreparedData):
    before = torch.get_rng_state()
    match_budget(
        runs_of(tiny_toml, REFERENCE, replace(REFERENCE, label="b", preset="lstm"), match="params"),
        prepared,
        {},
    )
    assert torch.equal(torch.get_rng_state(), before)


# --- in a run


@pytest.fixture
def toml(tiny_toml: Path, tmp_path: Path) -> Path:
    """The tiny experiment in a few updates, the second model of four times the size."""
    text = (
        tiny_toml.read_text()
        .replace("max_updates = 90", "max_updates = 4")
        .replace("d_model = 16", "d_model = 32")
    )
    path = tmp_path / "matched.toml"
    path.write_text(text)
    return path


def test_a_row_says_what_was_matched_and_how_closely(toml: Path, tmp_path: Path):
    folder = tmp_path / "run"
    given = load_experiment(toml, ["budget.match=params"])
    first, second = run_experiment(given, folder, Reporter(quiet=True))
    assert (first.budget, first.budget_off) == ("params", 0)
    assert second.budget_off == pytest.approx(second.params / first.params - 1)
    assert abs(second.budget_off) <= TOLERANCE
    written = tomllib.loads((folder / "transformer-seed1" / "config.toml").read_text())
    assert written["budget"] == {"match": "params", "reference": "luong", "amount": float(first.params)}
    assert [row.budget_off for row in run_experiment(given, folder, Reporter(quiet=True))] == [
        0,
        second.budget_off,
    ]


def test_a_calibration_is_kept(toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A resumed run is the same run, even if the speed of the machine has changed."""
    folder = tmp_path / "run"
    given = load_experiment(toml, ["budget.match=time", "train.max_updates=3"])
    run_experiment(given, folder, Reporter(quiet=True))
    stored = json.loads((folder / "experiment.json").read_text())["seconds_per_update"]
    assert set(stored) == {"luong", "transformer"}
    before = {path: path.read_text() for path in folder.glob("*/config.toml")}
    monkeypatch.setattr(budget, "Trainer", lambda *_: pytest.fail("what is known is not measured again"))
    monkeypatch.setattr(run_all, "run_one", lambda *_: pytest.fail("what is done is not done again"))
    run_experiment(given, folder, Reporter(quiet=True))
    assert {path: path.read_text() for path in folder.glob("*/config.toml")} == before


def test_other_settings_than_the_folder_was_made_with(toml: Path, tmp_path: Path):
    folder = tmp_path / "run"
    run_experiment(load_experiment(toml, ["budget.match=params"]), folder, Reporter(quiet=True))
    with pytest.raises(ValueError, match="holds another experiment"):
        run_experiment(load_experiment(toml, ["budget.match=flops"]), folder, Reporter(quiet=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["match=parms"], "match must be one of none, params, flops, time"),
        (["match=params", "reference=lstm"], "budget.reference 'lstm' is not a model of this experiment"),
        (["reference=luong"], "reference and amount have no effect without match"),
        (["match=flops", "amount=-1"], "amount must be at least 0"),
    ],
)
def test_a_budget_that_means_nothing(
    settings: list[str], message: str, toml: Path, tmp_path: Path, refusal: Refusal
):
    given = [part for setting in settings for part in ("--set", f"budget.{setting}")]
    assert message in refusal("run", toml, "--out", tmp_path / "run", *given)
    assert not (tmp_path / "run").exists()
