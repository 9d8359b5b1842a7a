"""The search space: what options mean, that draws are the same for every model, what is refused."""

from collections import Counter
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.experiment.tune.plan import TuningPlan, plan_search
from compare.experiment.tune.space import (
    DEFAULT_SPACE,
    LogRange,
    Values,
    apply_settings,
    draw_settings,
    parse_space,
)

pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")


def test_an_option_replaces_or_adds_a_setting():
    space = parse_space(["learning_rate=1e-3:1e-1", " schedule = linear,cosine", "warmup_updates=10:100"])
    assert space == {
        "learning_rate": LogRange(1e-3, 1e-1),
        "dropout": DEFAULT_SPACE["dropout"],
        "schedule": Values(("linear", "cosine")),
        "warmup_updates": LogRange(10, 100),
    }
    again = parse_space([f"{name}={dimension}" for name, dimension in space.items()], default={})
    assert again == space


def test_a_range_is_drawn_log_uniformly_and_a_list_uniformly():
    """As many draws below the geometric mean as above; each value of a list about equally often."""
    draws = draw_settings(parse_space(["dropout=0,0.1,0.2", "warmup_updates=10:1000"]), 600, seed=3)
    rates = [draw["learning_rate"] for draw in draws]
    assert all(3e-4 <= rate <= 3e-2 and float(f"{rate:.3g}") == rate for rate in rates)
    assert 250 < sum(rate < 3e-3 for rate in rates) < 350
    assert 250 < sum(draw["warmup_updates"] < 100 for draw in draws) < 350
    assert all(type(draw["warmup_updates"]) is int for draw in draws)
    counts = Counter(draw["dropout"] for draw in draws)
    assert counts.keys() == {0.0, 0.1, 0.2}
    assert min(counts.values()) > 150


def test_draws_depend_on_the_seed_but_not_on_number_or_order():
    draws = draw_settings(DEFAULT_SPACE, 5, seed=1)
    assert draw_settings(DEFAULT_SPACE, 9, seed=1)[:5] == draws
    assert draw_settings(dict(reversed(DEFAULT_SPACE.items())), 5, seed=1) == draws
    assert draw_settings(DEFAULT_SPACE, 5, seed=2) != draws


def test_a_draw_changes_only_what_is_tuned(tiny_toml: Path):
    for run in resolve_models(load_experiment(tiny_toml)):
        changed = apply_settings(run, {"learning_rate": 0.5, "dropout": 0})
        assert changed.model.settings() == {**run.model.settings(), "learning_rate": 0.5, "dropout": 0.0}
        assert (changed.label, changed.train, changed.data) == (run.label, run.train, run.data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate", "must look like"),
        ("learning_rate=", "must look like"),
        ("dropout=0:0.3", "low:high with 0 < low < high"),
        ("learning_rate=1e-2:1e-3", "low:high with 0 < low < high"),
        ("learning_rate=1:2:3", "low:high with 0 < low < high"),
        ("learning_rate=1:inf", "low:high with 0 < low < high"),
        ("learning_rate=nan:2", "low:high with 0 < low < high"),
        ("learning_rate=a:b", "low:high with 0 < low < high"),
        ("dropout=0.1,0.1", "different values"),
        ("hidden_size=8,16", "only settings of the optimizer and dropout can be tuned"),
        ("attention_dropout=0.1", "models.luong has no such setting, but the space is the same"),
        ("lerning_rate=0.1", "did you mean 'learning_rate'"),
        ("dropout=0.5,2", "dropout must be"),
        ("dropout=high", "dropout must be float, found 'high'"),
    ],
)
def test_a_space_that_fits_not_every_model(text: str, message: str, tiny_toml: Path):
    with pytest.raises(ValueError, match=r"^--space") as caught:
        plan_search(tiny_toml, TuningPlan(trials=20, space=parse_space([text])))
    assert message in str(caught.value)


def test_a_setting_is_named_once():
    with pytest.raises(ValueError, match="dropout is given twice"):
        parse_space(["dropout=0", "dropout=0.1"])


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"updates": -1}, {"seed": -1}, {"seed": 2**32}])
def test_numbers_out_of_range(wrong: dict[str, int]):
    with pytest.raises(ValueError, match="must be"):
        TuningPlan(**wrong)  # type: ignore[arg-type]


def test_a_budget_of_time_is_refused(tiny_toml: Path):
    with pytest.raises(ValueError, match=r"budget\.match = 'time' cannot be tuned"):
        plan_search(tiny_toml, TuningPlan(), ["budget.match=time"])
