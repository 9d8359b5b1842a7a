"""Scripts in benchmarks/: the table of races, and the profile of updates."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from compare.benchmark import BenchPlan, make_inputs
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.experiment.timing import TrainingWork
from compare.models.registry import build

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def race(**report: Any) -> str:
    """Render a race of two toolkits of 2 MFLOP per token, 1,000 tokens in 1 s and in 2 s."""
    fixed = {
        "params": 5e6,
        "last": {"peak_memory_bytes": 1e9},
        "versions": {"torch": "9"},
        "about": "a model",
    }
    racers = [
        {"name": "attnbench", "seconds": [1.0, 1.0], **fixed},
        {"name": "peer", "seconds": [2.0, 2.0], **fixed},
        {"name": "other", "unsupported": "no such model"},
    ]
    one = {
        "model": "lstm",
        "beam": 0,
        "unit": "tokens",
        "amount": 1_000,
        "mflop_per_token": 2.0,
        "racers": racers,
    }
    whole = {
        "phase": "train",
        "precision": "fp32",
        "repeats": 2,
        "updates": 1,
        "device": "Abacus",
        "threads": 2,
    }
    render = runpy.run_path(str(BENCHMARKS / "peers" / "table.py"))["render"]
    text: str = render(whole | {"races": [one], "yardstick_flops_per_s": [4e9, 3e9]} | report)
    return text


def test_a_race_shows_the_share_of_the_product_rate_and_the_users_settings():
    text = race(gflops={"fp32": 4.0, "bf16": 8.0}, users_settings={"MKL_CBWR": "AVX2"})
    heading, _, *rows = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|"))
    column = heading.index("share of products")
    assert [row[column] for row in rows] == ["50%", "25%", "-"]
    assert "products 4 in fp32 and 8 in bf16; the user's settings MKL_CBWR=AVX2" in text
    assert "share of products" not in race()  # an earlier report, by the slower of two libraries


@pytest.mark.parametrize(("label", "precision"), [("luong", "bf16"), ("transformer", "fp32")])
def test_the_kinds_of_operations_make_up_the_update(label: str, precision: str, tiny_toml: Path):
    runs = resolve_models(load_experiment(tiny_toml, [f"train.precision={precision}"]))
    run = next(run for run in runs if run.label == label)
    inputs = make_inputs(run, BenchPlan(updates=2, batches=(1,)))
    model = build(run.model.architecture, *inputs.vocabulary_sizes)
    profile_updates = runpy.run_path(str(BENCHMARKS / "update_profile.py"))["profile_updates"]
    ms, rate = profile_updates(TrainingWork(run, model, inputs.updates), 2)
    kinds = {kind: value for kind, value in ms.items() if kind not in ("all", "without profiler")}
    assert sum(kinds.values()) == pytest.approx(ms["all"])
    assert {"products", "softmax", "loss", "dropout", "clipping and optimizer", "Python"} <= kinds.keys()
    assert min(*kinds.values(), rate) > 0
    assert ("casts" in kinds) >= (precision == "bf16")
