"""Figures of a result, and the timing of all models in turn."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import msgspec
import pytest
import torch

from compare.check import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.resolve import Run, resolve_model, resolve_models, settings_hash
from compare.config.sections import ModelConfig
from compare.decoding.search import Hypothesis
from compare.decoding.translator import Translator
from compare.experiment import compute_result
from compare.experiment import run as run_all
from compare.experiment import timing as time_all
from compare.experiment.compute_result import (
    UP_TO_ROUNDING,
    all_code_versions,
    gpu_conditions,
    late_gain,
    size_figures,
    speed_figures,
    together_figures,
    training_figures,
)
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run import run_experiment
from compare.experiment.timing import SearchWork, results_to_time
from compare.models.registry import build
from compare.results.records import RawSpeed, read_speed
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_result, read_results, write_record
from compare.system import timer as timing
from compare.system.device import Machine
from compare.system.log import Reporter
from compare.system.plugins import source_version
from compare.training.checkpoints import model_weights, save_weights
from compare.training.log import read_metrics
from tests.kits.common import ROWS, Clock, files
from tests.kits.experiments import change_result

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
        ([(25, 10.0), (50, 11.0), (75, 13.0), (100, 12.5)], 0.0),
        ([(25, 10.0), (50, 12.0), (76, 14.0), (100, 13.0)], 2.0),
        ([(90, 10.0), (100, 12.0)], None),
        ([(50, None), (100, None)], None),
        ([], None),
    ],
)
def test_the_gain_of_the_last_quarter(curve: list[tuple[int, float | None]], gain: float | None):
    lines = [{"kind": "valid", "update": update, "bleu": bleu} for update, bleu in curve]
    assert late_gain([{"kind": "train", "update": 1}, *lines]) == gain


def test_training_by_hand():
    """Epochs have 4 and 6 batches; throughput counts waiting for data, and no validation."""
    line = {"kind": "train", "updates": 3, "src_tokens": 30, "tgt_tokens": 70, "data_s": 1.0, "train_s": 4.0}
    final = {"kind": "final", "update": 6, "best_update": 3, "loss": 2.0, "validation_s": 9.0}
    lines = [line | {"joules": 5.0}, line | {"joules": 7.0}, final | {"checkpoint_s": 8.0}]
    stream = Mock(token_counts=lambda epoch: [0] * (2 + 2 * epoch))
    assert training_figures(lines, stream) == pytest.approx(
        {
            **{"updates": 6, "epochs": 1 + 2 / 6, "tokens_seen": 200, "best_update": 3},
            **{"valid_loss": 2.0, "valid_perplexity": math.exp(2), "energy_j_per_1k_tokens": 60.0},
            **{"data_s": 2.0, "train_s": 8.0, "validation_s": 9.0, "checkpoint_s": 8.0},
            "train_tokens_per_s": 20.0,
        }
    )


def test_metrics_that_were_lost_are_a_clear_error(finished: Path):
    lines = read_metrics(finished / ROWS[0] / "metrics.jsonl")
    for damaged in ([], lines[:-1], lines[1:]):
        with pytest.raises(ValueError, match=r"metrics\.jsonl lacks lines: delete the run's checkpoints"):
            training_figures(damaged, None)  # type: ignore[arg-type]


# Speed.
METRICS = [
    {"kind": "train", "src_tokens": 30, "tgt_tokens": 70},
    {"kind": "train", "src_tokens": 20, "tgt_tokens": 80},
    {"kind": "train", "src_tokens": 40, "tgt_tokens": 60},
    {"kind": "valid"},
]
SESSION = {
    "device": "NVIDIA H100 80GB HBM3",
    "torch": "9.9",
    "threads": 4,
    "cores": 8,
    "clock_mhz": 2600.0,
    "throttling": "power cap",
    "fp32_gflops": 40e3,
    "bf16_gflops": 700e3,
    "environment": None,
    "timed_together": "a1b2",
    "code_version": "0.1+abc",
}
SPEED = {
    "decode_s": 7.0,
    "peak_memory_bytes": 10,
    "train_peak_memory_bytes": 10,
    "decode_peak_memory_bytes": 8,
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
    costs = {name: value for name, value in content.items() if name.endswith(("decode_s", "_bytes"))}
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
            "timed_tokens_per_s": 3000.0,
            "timed_tokens_per_s_low": 2000.0,
            "timed_tokens_per_s_high": 6000.0,
            "timed_tgt_tokens_per_s": 2100.0,
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
            "timed_together": "a1b2",
            "device": "NVIDIA H100 80GB HBM3",
            "torch": "9.9",
            "threads": 4,
            "cores": 8,
            "clock_mhz": 2600.0,
            "throttling": "power cap",
            "fp32_gflops": 40e3,
            "bf16_gflops": 700e3,
            "environment": None,
            "timed_code": "0.1+abc",
            "decode_s": 7.0,
            "peak_memory_bytes": 10,
            "train_peak_memory_bytes": 10,
            "decode_peak_memory_bytes": 8,
            "trained_on": None,
        }
    )


@pytest.mark.parametrize(
    ("logged", "decoded", "expected"),
    [
        ([], {}, None),
        ([], {"threads": 1}, "NVIDIA H100 80GB HBM3, torch 9.9, threads: 1"),
        (["NVIDIA H100 80GB HBM3, torch 9.9, threads: 4"], {"device": "a CPU"}, None),
        (["A", "B", "B"], {}, "A and B"),  # stopped, and continued elsewhere
    ],
)
def test_other_machines_of_training_are_named(
    logged: list[str], decoded: dict[str, Any], expected: str | None
):
    machine = {field.name: SESSION[field.name] for field in dataclasses.fields(Machine)} | decoded
    raw = msgspec.convert(nested(SPEED) | {"decoded_on": machine}, RawSpeed)
    metrics = [line | {"machine": name} for line, name in zip(METRICS, logged, strict=False)] or METRICS
    assert speed_figures(raw, metrics, flops=1e9, precision="bf16")["trained_on"] == expected


def test_the_code_of_each_part_of_a_training_is_named(tiny_toml: Path):
    run = resolve_models(load_experiment(tiny_toml))[0]
    parts = [{"code": "1+a"}, {"code": source_version()}, {"code": "1+b"}, {}, {"code": "1+a"}]
    assert all_code_versions(run, parts) == f"1+a and 1+b and {source_version()}"
    assert all_code_versions(run, [{}, {"code": source_version()}]) == source_version()


def test_the_slowest_reference_work_tells_how_fast_the_machine_was(tmp_path: Path):
    works = {
        "train": {**SPEED["train"], "reference_s": [0.05, 0.06, 0.05]},
        "beam": {**SPEED["beam"], "reference_s": [0.08, 0.02, 0.09]},
        "session": {**SESSION, "best_reference_s": 0.04},
    }
    figures = figures_of(tmp_path / "speed.json", SPEED | works)
    assert (figures["reference_ms"], figures["reference_share"]) == pytest.approx((80, 0.5))


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
    assert figures["latency_ms_p50_low"] is figures["timed_tokens_per_s_high"] is None


def test_a_run_that_is_not_timed_yet_has_its_own_costs_only(tmp_path: Path):
    peaks = ("peak_memory_bytes", "train_peak_memory_bytes", "decode_peak_memory_bytes")
    costs = {"decode_s": 7.0, **dict.fromkeys(peaks)}
    write_record(tmp_path / "speed.json", RawSpeed(**costs))
    assert json.loads((tmp_path / "speed.json").read_text()) == costs | {"decoded_on": None, "timings": None}
    figures = speed_figures(read_speed(tmp_path / "speed.json"), METRICS, flops=1e9, precision="fp32")
    assert figures == costs | {"trained_on": None}


def test_the_speed_per_device_is_that_of_all_divided():
    times = {"data_s": 1.0, "joules": None, "processes": 2, "devices": 2, "nodes": 1}
    windows = [line | times | {"train_s": s} for line, s in zip(METRICS[:3], (9.0, 1.0, 2.0), strict=True)]
    assert together_figures(windows)["together_tokens_per_s_per_device"] == 300 / 15 / 2


# Training on a GPU.


def make_run(tiny_toml: Path, label: str, **train: object) -> Run:
    run = next(run for run in resolve_models(load_experiment(tiny_toml)) if run.label == label)
    return dataclasses.replace(run, train=dataclasses.replace(run.train, **train))


@pytest.mark.parametrize("has_bf16", [False, True])
@pytest.mark.parametrize(
    ("preset", "precision"),
    [
        ("luong-general", "bf16"),
        ("luong-general", "fp32"),
        ("ladder", "bf16"),
        ("rnn-transformer", "bf16"),
        ("transformer", "bf16"),
        ("min-gru", "bf16"),
        ("rnmt-plus", "bf16"),
    ],
)
def test_the_row_says_where_recurrent_layers_are_not_in_its_precision(
    preset: str, precision: str, has_bf16: bool, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    """Only of cells that cuDNN computes."""
    monkeypatch.setattr(compute_result, "has_bf16_layers", lambda: has_bf16)
    run = make_run(tiny_toml, "luong", device="cuda:1", precision=precision, deterministic=True)
    run = dataclasses.replace(run, model=resolve_model(ModelConfig(preset=preset, label=preset)))
    is_recurrent = preset in ("luong-general", "ladder", "rnn-transformer")
    differs = is_recurrent and precision == "bf16" and not has_bf16
    expected = {"recurrent_precision": "fp32" if differs else None, "reproducible": None}
    assert gpu_conditions(run) == expected


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_weights_of_a_gpu_repeat_up_to_rounding_unless_asked_for(device: str, tiny_toml: Path):
    run = make_run(tiny_toml, "transformer", device=device)
    assert gpu_conditions(run)["reproducible"] == UP_TO_ROUNDING
    other = make_run(tiny_toml, "transformer", device=device, deterministic=True)
    assert gpu_conditions(other)["reproducible"] is None
    assert settings_hash(run) == settings_hash(other)


BASE = {"Seq2Seq": 1.0, "Transformer": 2.0}
"""Seconds that the work of each model takes besides the number of the repeat."""


@pytest.fixture
def untimed(copy: Path) -> Path:
    """The finished experiment as its last run leaves it, without tables, which another test may have made."""
    for table in (*copy.glob("table.*"), copy / "results.jsonl"):
        table.unlink(missing_ok=True)
    for run in ROWS:
        raw = read_speed(copy / run / "speed.json")
        write_record(copy / run / "speed.json", RawSpeed(decode_s=raw.decode_s, peak_memory_bytes=7))
        change_result(copy, run, timed_together=None, timed_tokens_per_s=None, cpu_share=None)
    return copy


@pytest.fixture
def settings(tiny_toml: Path) -> Run:
    return resolve_models(
        load_experiment(tiny_toml, ["bench.repeats=3", "bench.updates=2", "bench.latency_sentences=3"])
    )[0]


@pytest.fixture
def prepared(settings: Run, tmp_path: Path) -> PreparedData:
    return prepare_data(settings, tmp_path / "encoded")


class Stage(Clock):
    """Clock that every search and every update advances, by the model and the number of the repeat."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        search, stage = Translator.search, self

        def slow_search(translator: Translator, lines: list[str], beam_size: int = 2) -> object:
            kind = "greedy" if beam_size == 1 else "latency" if len(lines) == 1 else "beam"
            stage.spend(kind, translator.model)
            return search(translator, lines, beam_size)

        def slow_step(criterion: Any, *_: object, **__: object) -> None:
            assert criterion.training
            stage.spend("train", criterion.model)

        monkeypatch.setattr(Translator, "search", slow_search)
        monkeypatch.setattr(timing.ReferenceWork, "__call__", lambda _: self.pass_time(0.05))
        monkeypatch.setattr(timing, "product_gflops", lambda _, precision: float(precision[-2:]))
        monkeypatch.setattr(time_all, "train_step", slow_step)
        monkeypatch.setattr(timing, "time", self)

    def spend(self, kind: str, model: torch.nn.Module) -> None:
        """Let call n take BASE + its repeat, 0 to warm up; three sentences or two updates share a repeat."""
        name = type(model).__name__
        before = self.calls.count((kind, name))
        repeat = {"latency": (before + 2) // 3, "train": before // 2}.get(kind, before)
        self.calls.append((kind, name))
        self.now += (BASE[name] + repeat) * {"latency": 0.001, "train": 0.5}.get(kind, 1.0)


def test_searches_count_the_tokens_with_the_ends_of_sentences():
    searches = [lambda: [Hypothesis([5, 6], 0.0), Hypothesis([], 0.0)], lambda: [Hypothesis([7], 0.0)]]
    work = SearchWork(searches, torch.device("cpu"), torch.nn.Linear(1, 1))  # type: ignore[arg-type]
    work()
    assert (work.sentences, work.tokens, [len(ms) for ms in work.ms]) == (3, 3 + 1 + 2, [2])


def test_models_take_turns_and_figures_follow_from_the_clock(
    untimed: Path, settings: Run, prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    """Repeats of model m take m + 1, m + 2, m + 3 seconds: the median m + 2, the others are the spread."""
    stage = Stage(monkeypatch)
    monkeypatch.setattr(timing, "CACHE", untimed.parent)
    time_all.time_all(untimed, settings, prepared)
    expected = [(kind, model) for kind in ("greedy", "beam") for _ in range(4) for model in BASE]
    expected += [("latency", model) for model in BASE]  # warm-up
    expected += [("latency", model) for _ in range(3) for model in BASE for _ in range(3)]
    expected += [("train", model) for _ in range(4) for model in BASE for _ in range(2)]
    assert stage.calls == expected
    batches = list(prepared.stream.epoch(1))[:2]
    tokens = sum(int(batch.src_mask.sum()) - len(batch) + int(batch.tgt_mask.sum()) for batch in batches)
    for row, base in zip(ROWS, BASE.values(), strict=True):
        result = read_result(untimed / row)
        for name, work in (
            ("timed_tokens_per_s", tokens),
            ("greedy_sentences_per_s", 2),
            ("beam_sentences_per_s", 2),
        ):
            measured = [getattr(result, f"{name}{end}") for end in ("_low", "", "_high")]
            assert measured == pytest.approx([work / (base + 3), work / (base + 2), work / (base + 1)])
        measured = [getattr(result, f"latency_ms_p50{end}") for end in ("_low", "", "_high")]
        assert measured == pytest.approx([base + 1, base + 2, base + 3])
        assert result.latency_ms_p95 is None  # three sentences are too few
        assert result.train_mfu is None  # a processor has no data sheet
        assert result.peak_memory_bytes == 7
        assert 0 < (result.cpu_share or 0) <= 1
        assert (result.reference_ms, result.reference_share) == pytest.approx((50, 1))
        assert (result.threads, result.torch) == (torch.get_num_threads(), torch.__version__)
        assert (result.cores or 0) >= 1
        assert (result.fp32_gflops, result.bf16_gflops) == (32.0, 16.0)
        assert result.timed_code == source_version()
    assert len({result.timed_together for result in read_results(untimed)} - {None}) == 1
    assert not check_experiment(untimed).differences
    assert not results_to_time(untimed)


def test_of_each_model_the_largest_budget_of_the_lowest_seed_is_timed(copy: Path):
    runs = [("luong", 2, 90), ("luong", 1, 8), ("luong", 1, 90)]
    results = [Result(label=a, seed=b, budget=c, preset="luong-general", status="done") for a, b, c in runs]
    for result in results:
        shutil.copytree(copy / ROWS[0], copy / result.run)
    timed = time_all._runs_to_time(copy, results)["luong"]
    assert timed is not None
    assert timed.name == "luong-seed1-budget90"


def run_again(toml: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    with monkeypatch.context() as patch:
        patch.setattr(run_all, "run_model", lambda *_: pytest.fail("a finished run is not run again"))
        return run_experiment(load_experiment(toml), folder, Reporter())


def test_a_killed_timing_is_made_again(untimed: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch):
    """Stopped between the two files of the second run."""
    save = Mock(wraps=time_all.save_result, side_effect=[DEFAULT, KeyboardInterrupt])
    with monkeypatch.context() as patch:
        patch.setattr(time_all, "save_result", save)
        with pytest.raises(KeyboardInterrupt):
            run_again(tiny_toml, untimed, patch)
    assert len({result.timed_together for result in read_results(untimed)}) == 2
    results = run_again(tiny_toml, untimed, monkeypatch)
    assert len({result.timed_together for result in results} - {None}) == 1
    assert not check_experiment(untimed).differences
    before = files(untimed)
    run_again(tiny_toml, untimed, monkeypatch)
    assert files(untimed) == before


@pytest.mark.usefixtures("without_plots")
def test_all_are_timed_again_on_request(copy: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str]):
    before, (session,) = read_results(copy), {result.timed_together for result in read_results(copy)}
    command = ["run", str(tiny_toml), "--out", str(copy), "-q", "--time-again"]
    assert main([*command, "--set", "train.clip_norm=2"]) == 2
    assert read_results(copy) == before  # a mistake forgets no timing
    assert main(command) == 0
    after = read_results(copy)
    (again,) = {result.timed_together for result in after}
    assert again not in (session, None)
    assert [(row.bleu, row.train_s) for row in after] == [(row.bleu, row.train_s) for row in before]
    assert not check_experiment(copy).differences
    (copy / ROWS[0] / "checkpoints" / "final.safetensors").unlink()
    capsys.readouterr()
    assert main(["run", str(tiny_toml), "--out", str(copy), "-q", "--time-again"]) == 2
    message = f"{copy}: no run of luong has weights, so they cannot be timed again"
    assert message in capsys.readouterr().err
    assert {result.timed_together for result in read_results(copy)} == {again}


@pytest.mark.parametrize(
    ("changes", "timed"),
    [
        ({"status": "failed", "reason": "NaN"}, True),
        ({"status": "unfinished", "reason": "out of memory"}, True),
        ({"status": "unfinished"}, False),
    ],
)
def test_failed_runs_are_skipped_and_unfinished_ones_are_waited_for(
    changes: dict[str, Any], timed: bool, untimed: Path, settings: Run, prepared: PreparedData
):
    change_result(untimed, ROWS[0], **changes)
    before = files(untimed / ROWS[0])
    time_all.time_all(untimed, settings, prepared)
    assert (read_result(untimed / ROWS[1]).timed_together is not None) is timed
    assert files(untimed / ROWS[0]) == before


def test_lack_of_memory_leaves_speeds_unknown(
    untimed: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(time_all, "_time_models", full)
        results = run_again(tiny_toml, untimed, patch)
    assert [(result.status, result.timed_together) for result in results] == [("done", None)] * 2
    assert (
        "speeds were not measured: out of memory: CUDA out of memory; run the same command again to retry"
        in caplog.text
    )
    assert None not in {result.timed_together for result in run_again(tiny_toml, untimed, monkeypatch)}


def test_training_is_timed_in_the_parts_of_its_batches(
    tiny_toml: Path, untimed: Path, prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    config = untimed / ROWS[0] / "config.toml"
    config.write_text(config.read_text().replace("accumulate = 1", "accumulate = 2"))
    step = Mock(wraps=time_all.train_step)
    monkeypatch.setattr(time_all, "train_step", step)
    time_all.time_all(untimed, resolve_models(load_experiment(tiny_toml))[0], prepared)
    assert {len(parts) for (_, _, _, *parts), _ in step.call_args_list} == {1, 2}
