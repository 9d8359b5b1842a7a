"""Matched budgets: widths and updates are solved for; a budget that cannot be met is an error."""

import tomllib
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
import torch

from compare.config.parse import load_experiment
from compare.config.resolve import Run, resolve_model, resolve_models, runs_to_toml
from compare.config.sections import BudgetConfig, ModelConfig
from compare.experiment import budget as calibration
from compare.experiment.budget import (
    FFN_RATIOS,
    GRID,
    HEAD_STRETCH,
    MAX_FACTOR,
    SEARCHES,
    TOLERANCE,
    calibrate,
    describe_work,
    in_one_plan,
    match_budget,
    with_updates,
)
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run import run_experiment
from compare.models.presets import PRESETS
from compare.models.registry import ResolvedModel, build
from compare.optim import SCHEDULES
from compare.results.store import Registry
from compare.system.log import Reporter
from compare.system.measure import TimedRepeat
from tests.kits.runs import first_run

MAY_CHANGE = {"d_model", "num_heads", "ffn_size", "hidden_size", "encoder_size", "attention_size"}
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


@pytest.fixture(scope="module")
def prepared(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare_data(first_run(tiny_toml), tmp_path_factory.mktemp("encoded"))


def measured(runs: list[Run], *seconds: float) -> Registry:
    """The content of experiment.json once these seconds per update were measured."""
    known = dict(zip((run.label for run in runs), seconds, strict=True))
    return Registry(seconds_per_update=known, calibrated_as=describe_work(runs))


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


@pytest.mark.parametrize(("preset", "kind"), MATCHED)
def test_every_family_can_be_made_as_large_as_a_reference(
    preset: str, kind: str, tiny_toml: Path, prepared: PreparedData
):
    """Every width is a multiple of 8 and in proportion, and the heads keep about their size."""
    sizes = {"d_model": 128, "ffn_size": 384, **SMALL}
    small = {name: size for name, size in sizes.items() if name in PRESETS[preset].model.settings()}
    other = ModelConfig(preset=preset, label="other", overrides=small)
    first, second = match_budget(runs_of(tiny_toml, REFERENCE, other, match=kind), prepared, Registry())
    target = amount(kind, REFERENCE, prepared)
    assert first.model == resolve_model(REFERENCE)
    assert first.budget == second.budget == BudgetConfig(match=kind, reference="reference", amount=target)
    assert abs(amount(kind, second.model, prepared) / target - 1) <= TOLERANCE
    given = resolve_model(other)
    before, after = given.settings(), second.model.settings()
    assert {name for name in before if before[name] != after[name]} <= MAY_CHANGE
    # Of gated-linear, multiples of 8 miss the budget by over 2%.
    assert second.model.width_multiple() >= (4 if preset == "gated-linear" else GRID)
    factors = [width / before[name] for name, width in second.model.widths().items()]
    assert max(factors) / min(factors) <= SEARCHES[1][1] * 1.2  # 1.2: rounding of the smallest widths
    assert 1 / MAX_FACTOR <= factors[0] <= MAX_FACTOR
    if {"d_model", "ffn_size"} <= after.keys():
        low, high = FFN_RATIOS
        assert low <= after["ffn_size"] / after["d_model"] <= high
    if head := given.head_size():
        assert head / HEAD_STRETCH <= second.model.head_size() <= head * HEAD_STRETCH


def test_the_head_of_a_model_without_projections_is_as_wide_as_the_model(
    tiny_toml: Path, prepared: PreparedData
):
    plain = {"d_model": 64, "ffn_size": 192, "num_heads": 1, "projections": "none"}
    other = ModelConfig(preset="transformer", label="other", overrides=plain)
    _, found = match_budget(runs_of(tiny_toml, REFERENCE, other, match="params"), prepared, Registry())
    assert found.model.settings()["num_heads"] == 1
    assert found.model.settings()["d_model"] > 128
    assert (
        abs(amount("params", found.model, prepared) / amount("params", REFERENCE, prepared) - 1) <= TOLERANCE
    )


def test_a_budget_out_of_reach_says_how_near_it_comes(tiny_toml: Path, prepared: PreparedData):
    narrow = replace(REFERENCE, overrides={"embedding_size": 16, "hidden_size": 24})
    with pytest.raises(
        ValueError, match=r"models\.reference: cannot meet the budget of 1,000,000,000 params"
    ) as caught:
        match_budget(runs_of(tiny_toml, narrow, match="params", amount=1e9), prepared, Registry())
    wide = replace(narrow, overrides={"embedding_size": 16 * 16, "hidden_size": 4 * 24})
    off = amount("params", wide, prepared) / 1e9 - 1
    assert f"{off:+.1%} is the nearest" in str(caught.value)


def test_time_buys_updates(tiny_toml: Path, prepared: PreparedData):
    whole = runs_of(tiny_toml, REFERENCE, replace(REFERENCE, label="slow"), match="time")
    known = measured(whole, 0.2, 0.55)
    first, second = match_budget(whole, prepared, known)
    assert (first.train.max_updates, second.train.max_updates) == (90, round(90 * 0.2 / 0.55))
    assert first.budget.amount == second.budget.amount == pytest.approx(18)
    given = [replace(run, budget=BudgetConfig(match="time", amount=11)) for run in whole]
    assert [run.train.max_updates for run in match_budget(given, prepared, known)] == [55, 20]
    given = [replace(run, budget=BudgetConfig(match="time", amount=0.2)) for run in whole]
    with pytest.raises(ValueError, match=r"one update takes 0\.55 s, more than the budget of 0\.20 s"):
        match_budget(given, prepared, known)


def test_time_scales_what_is_a_share_of_training(tiny_toml: Path, prepared: PreparedData):
    """Validations at the same shares of training, as many of them, and a learning rate of the same curve."""
    plan = replace(load_experiment(tiny_toml).train, max_updates=4100, valid_every=450, checkpoint_every=450)
    slow = replace(
        REFERENCE, label="slow", overrides={**SMALL, "warmup_updates": 400, "attention_warmup": 100}
    )
    runs = runs_of(tiny_toml, REFERENCE, slow, match="time", amount=4100)
    runs = [replace(run, train=plan) for run in runs]
    same, half = match_budget(runs, prepared, measured(runs, 1.0, 2.0))
    assert (same.train, same.model) == (plan, runs[0].model)
    assert (half.train.max_updates, half.train.valid_every, half.train.checkpoint_every) == (2050, 225, 225)
    assert half.model == runs[1].model.override({"warmup_updates": 200, "attention_warmup": 50})
    path = tiny_toml.with_name("written.toml")
    path.write_text(runs_to_toml(in_one_plan([same, half])))  # from which the same budget gives the same runs
    again = resolve_models(load_experiment(path))
    assert [(run.train.max_updates, run.model) for run in again] == [(4100, run.model) for run in runs]
    for schedule in SCHEDULES:
        long = replace(runs[1], model=runs[1].model.override({"schedule": schedule}))
        short = with_updates(long, 2050).model.optim
        for update in (100, 200, 400, 1600, 4000):
            expected = long.model.optim.learning_rate_at(update, 4100)
            assert short.learning_rate_at(update // 2, 2050) == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize("updates", [100, 114, 135, 999, 6150])
@pytest.mark.parametrize(("max_updates", "valid_every"), [(4100, 450), (1050, 350), (40, 20), (90, 40)])
def test_every_run_is_validated_as_often(updates: int, max_updates: int, valid_every: int, tiny_toml: Path):
    (run,) = runs_of(tiny_toml, REFERENCE)
    run = replace(run, train=replace(run.train, max_updates=max_updates, valid_every=valid_every))
    assert count_validations(with_updates(run, updates)) == count_validations(run)


def count_validations(run: Run) -> int:
    """Count them as the trainer decides: every so many updates, and after the last."""
    train = run.train
    return sum(
        update % train.valid_every == 0 or update == train.max_updates
        for update in range(1, train.max_updates + 1)
    )


def test_a_calibration_counts_tokens_as_training_does(
    tiny_toml: Path, prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    """A model that takes 2 s for the updates of a round takes as much per token in the whole epoch."""
    repeat = TimedRepeat(2.0, joules=None, peak_memory_bytes=None, cpu_share=1.0, reference_s=0.05)
    monkeypatch.setattr(calibration, "time_in_turn", lambda works, device, repeats: iter([(0, repeat)]))
    monkeypatch.setattr(calibration, "UPDATES", 3)
    batches = list(prepared.stream.epoch(1))
    tokens = [batch.src_tokens + batch.tgt_tokens for batch in batches]
    runs = runs_of(tiny_toml, REFERENCE, ModelConfig(preset="luong-dot", label="other"))
    before = torch.get_rng_state()
    known = Registry(seconds_per_update={"other": 5.0}, calibrated_as=describe_work(runs[1:]))
    calibrate(runs, prepared, known)
    expected = 2.0 / sum(tokens[:3]) * sum(tokens) / len(tokens)
    assert known.seconds_per_update == {"reference": pytest.approx(expected), "other": 5.0}
    assert torch.equal(torch.get_rng_state(), before)


# --- in a run


def test_a_row_says_what_was_matched_and_how_closely(tiny_toml: Path, tmp_path: Path):
    folder = tmp_path / "run"
    settings = ["budget.match=params", "train.max_updates=4", "models.transformer.d_model=32"]
    given = load_experiment(tiny_toml, settings)
    first, second = run_experiment(given, folder, Reporter())
    assert (first.budget, first.budget_off) == ("params", 0)
    assert second.budget_off == pytest.approx(second.params / first.params - 1)
    assert abs(second.budget_off) <= TOLERANCE
    written = tomllib.loads((folder / "transformer-seed1" / "config.toml").read_text())
    assert written["budget"] == {"match": "params", "reference": "luong", "amount": float(first.params)}
    assert [row.budget_off for row in run_experiment(given, folder, Reporter())] == [0, second.budget_off]


def test_a_changed_model_is_calibrated_again(
    tiny_toml: Path, prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(calibration, "UPDATES", 3)
    runs = resolve_models(load_experiment(tiny_toml))
    known = {"luong": 1.0, "transformer": 2.0}
    registry = measured(runs, 1.0, 2.0)
    calibrate(runs, prepared, registry)
    slower = resolve_models(load_experiment(tiny_toml, ["models.transformer.learning_rate=0.5"]))
    calibrate(slower, prepared, registry)
    assert registry.seconds_per_update == known
    changed = resolve_models(load_experiment(tiny_toml, ["models.transformer.d_model=32"]))
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        with pytest.raises(ValueError, match="is measured by one process: begin without torchrun"):
            calibrate(changed, prepared, registry)
    calibrate(changed, prepared, registry)
    assert registry.seconds_per_update["luong"] == 1.0
    assert registry.seconds_per_update["transformer"] != 2.0
    assert registry.calibrated_as == describe_work(changed)
    monkeypatch.setattr(calibration, "this_machine", lambda _: "a faster one")
    calibrate(changed, prepared, registry)  # nothing is to be measured
    with pytest.raises(ValueError, match=r"was measured on .*, and this is a faster one: add models there"):
        calibrate(runs, prepared, registry)
