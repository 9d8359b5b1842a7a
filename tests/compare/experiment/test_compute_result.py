"""Figures of a result: sizes against models that were made, speeds by hand, conditions of a GPU."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_model, resolve_models, settings_hash
from compare.config.sections import ModelConfig
from compare.experiment import compute_result
from compare.experiment.compute_result import (
    TIMED,
    UP_TO_ROUNDING,
    gpu_conditions,
    late_gain,
    log_speed,
    size_figures,
    speed_figures,
    training_figures,
)
from compare.models.registry import build
from compare.report.conditions import list_conditions
from compare.results.records import RawSpeed, read_speed
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.results.store import write_record
from compare.training.metrics_log import read_metrics
from compare.training.serialization import model_weights, save_weights
from tests.kits.runs import ROWS

WORDS, WIDTH = 30, 16


@pytest.mark.parametrize(("tie", "matrices"), [("none", 2), ("output", 2), ("all", 1)])
@pytest.mark.parametrize(
    ("preset", "sizes"),
    [
        ("luong-dot", {"embedding_size": WIDTH, "hidden_size": WIDTH}),
        ("transformer", {"d_model": WIDTH, "ffn_size": WIDTH, "num_heads": 2}),
    ],
)
def test_a_tied_embedding_counts_once(
    preset: str, sizes: dict[str, int], tie: str, matrices: int, tiny_toml: Path, tmp_path: Path
):
    model = resolve_model(ModelConfig(preset=preset, label=preset, overrides={**sizes, "tie": tie}))
    run = RunFolder(run=resolve_models(load_experiment(tiny_toml))[0], folder=tmp_path)
    made = build(model.architecture, WORDS, WORDS)
    run.weights.parent.mkdir()
    save_weights(run.weights, model_weights(made))
    figures = size_figures(run, model.architecture, (WORDS, WORDS))
    assert figures["params"] == sum(tensor.numel() for tensor in made.parameters())
    assert figures["params"] - figures["params_no_embedding"] == matrices * WORDS * WIDTH


@pytest.mark.parametrize(
    ("curve", "gain"),
    [
        ([(25, 10.0), (50, 12.0), (75, 11.0), (100, 12.5)], 0.5),
        ([(25, 10.0), (50, 13.0), (75, 11.0), (100, 12.5)], 0.0),
        ([(25, 10.0), (50, 12.0), (76, 14.0), (100, 13.0)], 2.0),
        ([(90, 10.0), (100, 12.0)], None),
        ([(50, None), (100, None)], None),
        ([], None),
    ],
)
def test_the_gain_of_the_last_quarter(curve: list[tuple[int, float | None]], gain: float | None):
    lines = [{"kind": "valid", "update": update, "bleu": bleu} for update, bleu in curve]
    assert late_gain([{"kind": "train", "update": 1}, *lines]) == gain


def test_metrics_that_were_lost_are_a_clear_error(finished: Path):
    lines = read_metrics(finished / ROWS[0] / "metrics.jsonl")
    for damaged in ([], lines[:-1], lines[1:]):
        with pytest.raises(ValueError, match=r"metrics\.jsonl has lost lines: delete the run's checkpoints"):
            training_figures(damaged, None)  # type: ignore[arg-type]


# Speed.
METRICS = [
    {"kind": "train", "tokens_per_s": 1.0, "src_tokens": 999, "tgt_tokens": 1},  # start-up
    {"kind": "train", "tokens_per_s": 50.0, "src_tokens": 30, "tgt_tokens": 70},
    {"kind": "train", "tokens_per_s": 90.0, "src_tokens": 20, "tgt_tokens": 80},
    {"kind": "train", "tokens_per_s": 60.0, "src_tokens": 40, "tgt_tokens": 60},
    {"kind": "valid"},
]
SESSION = {
    "device": "NVIDIA H100 80GB HBM3",
    "torch": "9.9",
    "threads": 4,
    "cores": 8,
    "clock_mhz": 2600.0,
    "timed_together": "a1b2",
    "timed_run": "lstm-seed1",
    "decode_precision": "fp32",
}
SPEED = {
    "decode_s": 7.0,
    "peak_memory_bytes": 10,
    "train": {"sentences": 20, "tokens": 6000, "seconds": [3.0, 1.0, 2.0], "cpu_shares": [0.5, 0.97, 0.98]},
    "greedy": {"sentences": 6, "tokens": 60, "seconds": [9.0, 2.0, 1.0], "cpu_shares": [1.0, 1.0, 1.0]},
    "beam": {"sentences": 6, "tokens": 90, "seconds": [3.0, 30.0, 1.0], "cpu_shares": [0.9, 0.6, 0.8]},
    "latency": {
        "ms": [[float(ms + shift) for ms in range(101, 0, -1)] for shift in (0, 10, 2)],
        "cpu_shares": [0.99, 0.99, 0.99],
    },
    "session": SESSION,
}


def nested(content: dict[str, Any]) -> dict[str, Any]:
    """Put the timings of ``content`` where speed.json has them."""
    costs = {name: content[name] for name in ("decode_s", "peak_memory_bytes")}
    return costs | {"timings": {name: value for name, value in content.items() if name not in costs}}


def figures_of(path: Path, content: Any, precision: str = "bf16") -> dict[str, Any]:
    path.write_text(json.dumps(nested(content)))
    raw = read_speed(path)
    write_record(path, raw)
    assert read_speed(path) == raw
    return speed_figures(raw, METRICS, flops=1e9, precision=precision)


def test_speeds_by_hand(tmp_path: Path):
    figures = figures_of(tmp_path / "speed.json", SPEED)
    assert figures == pytest.approx(
        {
            "train_tokens_per_s": 3000.0,
            "train_tokens_per_s_low": 2000.0,
            "train_tokens_per_s_high": 6000.0,
            "train_tgt_tokens_per_s": 2100.0,
            "train_mfu": 3000 * 1e9 / 989e12,
            "greedy_sentences_per_s": 3.0,
            "greedy_sentences_per_s_low": 6 / 9,
            "greedy_sentences_per_s_high": 6.0,
            "beam_sentences_per_s": 2.0,
            "beam_sentences_per_s_low": 0.2,
            "beam_sentences_per_s_high": 6.0,
            "decode_tokens_per_s": 30.0,
            "latency_ms_p50": 53.0,
            "latency_ms_p50_low": 51.0,
            "latency_ms_p50_high": 61.0,
            "latency_ms_p95": 98.0,
            "cpu_share": 0.8,  # beam's median; train's is 0.97
            "decode_precision": "fp32",
            "timed_together": "a1b2",
            "device": "NVIDIA H100 80GB HBM3",
            "torch": "9.9",
            "threads": 4,
            "cores": 8,
            "clock_mhz": 2600.0,
            "decode_s": 7.0,
            "peak_memory_bytes": 10,
        }
    )


def test_the_peak_is_that_of_the_precision_of_training(tmp_path: Path):
    path = tmp_path / "speed.json"
    assert figures_of(path, SPEED, "fp32")["train_mfu"] == pytest.approx(3000 * 1e9 / 67e12)
    unknown = {**SPEED, "session": {**SESSION, "device": "Some CPU", "clock_mhz": None}}
    assert figures_of(path, unknown)["train_mfu"] is None


def test_few_sentences_have_no_percentile_and_one_repeat_no_spread(tmp_path: Path):
    latency = {"ms": [[float(ms) for ms in range(99)][1:]], "cpu_shares": [1.0]}
    one = {**SPEED["train"], "seconds": [2.0], "cpu_shares": [1.0]}
    figures = figures_of(tmp_path / "speed.json", {**SPEED, "latency": latency, "train": one})
    assert figures["latency_ms_p95"] is None
    assert figures["latency_ms_p50"] == 49.5
    assert figures["latency_ms_p50_low"] is figures["train_tokens_per_s_high"] is None


def test_a_run_that_is_not_timed_yet_has_its_own_costs_only(tmp_path: Path):
    costs = {"decode_s": 7.0, "peak_memory_bytes": None}
    write_record(tmp_path / "speed.json", RawSpeed(**costs))
    assert json.loads((tmp_path / "speed.json").read_text()) == costs | {"decoded_on": None, "timings": None}
    figures = speed_figures(read_speed(tmp_path / "speed.json"), METRICS, flops=1e9, precision="fp32")
    assert figures == dict.fromkeys(TIMED) | costs


def test_the_speed_of_the_training_itself_is_in_its_log():
    assert log_speed(METRICS) == (60.0, 0.7)
    assert log_speed(METRICS[:1]) == (1.0, 0.001)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"decode_s": 0}, "$.decode_s"),
        ({"train": {**SPEED["train"], "tokens": -1}}, "$.timings.train.tokens"),
        ({"beam": {**SPEED["beam"], "seconds": []}}, "$.timings.beam.seconds"),
        ({"latency": {"ms": [1.0], "cpu_shares": [1.0]}}, "$.timings.latency.ms[0]"),
        ({"session": {}}, "$.timings.session"),
        ({"session": {**SESSION, "cores": "8"}}, "$.timings.session.cores"),
    ],
)
def test_damaged_files_are_refused(changes: dict[str, Any], place: str, tmp_path: Path):
    path = tmp_path / "speed.json"
    path.write_text(json.dumps(nested({**SPEED, **changes})))
    with pytest.raises(ValueError, match=r"put the run's own speed\.json back") as caught:
        read_speed(path)
    assert place in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


# Training on a GPU.


def make_run(tiny_toml: Path, label: str, **train: object) -> Run:
    run = next(run for run in resolve_models(load_experiment(tiny_toml)) if run.label == label)
    return dataclasses.replace(run, train=dataclasses.replace(run.train, **train))


@pytest.mark.parametrize("has_bf16", [False, True])
@pytest.mark.parametrize(
    ("label", "precision"), [("luong", "bf16"), ("luong", "fp32"), ("transformer", "bf16")]
)
def test_the_row_says_where_recurrent_layers_are_not_in_its_precision(
    label: str, precision: str, has_bf16: bool, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compute_result, "has_bf16_layers", lambda: has_bf16)
    run = make_run(tiny_toml, label, device="cuda:1", precision=precision, deterministic=True)
    differs = (label, precision, has_bf16) == ("luong", "bf16", False)
    assert gpu_conditions(run) == ({"recurrent_precision": "fp32"} if differs else {})


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_weights_of_a_gpu_repeat_up_to_rounding_unless_asked_for(device: str, tiny_toml: Path):
    run = make_run(tiny_toml, "transformer", device=device)
    assert gpu_conditions(run) == {"reproducible": UP_TO_ROUNDING}
    other = make_run(tiny_toml, "transformer", device=device, deterministic=True)
    assert gpu_conditions(other) == {}
    assert settings_hash(run) == settings_hash(other)


def test_the_record_and_the_conditions_name_them():
    plain = Result(label="a", preset="lstm", seed=1, status="done")
    gpu = dataclasses.replace(plain, recurrent_precision="fp32", reproducible=UP_TO_ROUNDING)
    assert "recurrent_precision" not in plain.to_json()
    assert "reproducible" not in plain.to_json()
    assert '"recurrent_precision": "fp32"' in gpu.to_json()
    lines = dict(list_conditions([gpu.flat()]))
    assert lines["Precision"] == "recurrent layers fp32"
    assert lines["Training"] == f"weights reproducible {UP_TO_ROUNDING}"
