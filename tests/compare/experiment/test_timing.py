"""Timing of all models in turn: order, figures, kills, added and failed runs, several calls."""

import dataclasses
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models
from compare.decoding.translator import Translator
from compare.experiment import run as run_all
from compare.experiment import timing as time_all
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run import run_experiment
from compare.experiment.timing import results_to_time
from compare.models.registry import build
from compare.results.records import RawSpeed, read_speed
from compare.results.store import Result, read_result, read_results, save_result, write_record
from compare.system import measure as timing
from compare.system.log import Reporter
from compare.training import step as training_timing
from compare.training.loss import TranslationLoss
from tests.kits.clock import Clock
from tests.kits.runs import ROWS, files

BASE = {"Seq2Seq": 1.0, "Transformer": 2.0}
"""Seconds that the work of each model takes besides the number of the repeat."""


def change(folder: Path, run: str, **changes: Any) -> None:
    save_result(folder / run, dataclasses.replace(read_result(folder / run), **changes))


@pytest.fixture
def untimed(copy: Path) -> Path:
    """The finished experiment as its last run leaves it, without tables, which another test may have made."""
    for table in copy.glob("table.*"):
        table.unlink()
    for run in ROWS:
        raw = read_speed(copy / run / "speed.json")
        write_record(copy / run / "speed.json", RawSpeed(decode_s=raw.decode_s, peak_memory_bytes=7))
        change(copy, run, timed_together=None, train_tokens_per_s=None, cpu_share=None)
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

        def slow_search(translator: Translator, lines: list[str], beam_size: int) -> object:
            kind = "latency" if len(lines) == 1 else "greedy" if beam_size == 1 else "beam"
            stage.spend(kind, translator.model)
            return search(translator, lines, beam_size)

        def slow_step(criterion: Any, *_: object, **__: object) -> None:
            assert criterion.training
            stage.spend("train", criterion.model)

        monkeypatch.setattr(Translator, "search", slow_search)
        monkeypatch.setattr(training_timing, "train_step", slow_step)
        monkeypatch.setattr(timing, "time", self)

    def spend(self, kind: str, model: torch.nn.Module) -> None:
        """Let call n take BASE + its repeat, 0 to warm up; three sentences or two updates share a repeat."""
        name = type(model).__name__
        before = self.calls.count((kind, name))
        repeat = {"latency": (before + 2) // 3, "train": before // 2}.get(kind, before)
        self.calls.append((kind, name))
        self.now += (BASE[name] + repeat) * {"latency": 0.001, "train": 0.5}.get(kind, 1.0)


def test_models_take_turns_and_figures_follow_from_the_clock(
    untimed: Path, settings: Run, prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    """Repeats of model m take m + 1, m + 2, m + 3 seconds: the median m + 2, the others are the spread."""
    stage = Stage(monkeypatch)
    time_all.time_all(untimed, settings, prepared)
    expected = [(kind, model) for kind in ("greedy", "beam") for _ in range(4) for model in BASE]
    expected += [("latency", model) for model in BASE]  # warm-up
    expected += [("latency", model) for _ in range(3) for model in BASE for _ in range(3)]
    expected += [("train", model) for _ in range(4) for model in BASE for _ in range(2)]
    assert stage.calls == expected
    batches = list(prepared.stream.epoch(1))[:2]
    tokens = sum(int(each.src_mask.sum()) - len(each) + int(each.tgt_mask.sum()) for each in batches)
    for row, base in zip(ROWS, BASE.values(), strict=True):
        result = read_result(untimed / row)
        for name, work in (
            ("train_tokens_per_s", tokens),
            ("greedy_sentences_per_s", 2),
            ("beam_sentences_per_s", 2),
        ):
            found = [getattr(result, f"{name}{end}") for end in ("_low", "", "_high")]
            assert found == pytest.approx([work / (base + 3), work / (base + 2), work / (base + 1)])
        found = [getattr(result, f"latency_ms_p50{end}") for end in ("_low", "", "_high")]
        assert found == pytest.approx([base + 1, base + 2, base + 3])
        assert result.latency_ms_p95 is None  # of three sentences
        assert result.train_mfu is None  # a processor has no data sheet
        assert (result.decode_precision, result.peak_memory_bytes) == ("fp32", 7)
        assert 0 < (result.cpu_share or 0) <= 1
        assert (result.threads, result.torch) == (torch.get_num_threads(), torch.__version__)
        assert (result.cores or 0) >= 1
    assert len({result.timed_together for result in read_results(untimed)} - {None}) == 1
    amounts = ("speed.json: repeats of ", "speed.json: sentences of ")  # here not those of the config
    assert all(found.name.startswith(amounts) for found in check_experiment(untimed).differences)
    assert not results_to_time(untimed)


def run_again(toml: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    with monkeypatch.context() as patch:
        patch.setattr(run_all, "run_one", lambda *_: pytest.fail("a finished run is not run again"))
        return run_experiment(load_experiment(toml), folder, Reporter(quiet=True))


CALLS = [("write_record", 1), ("write_record", 2), ("save_result", 2)]


@pytest.mark.parametrize(("function", "calls"), CALLS)
def test_a_killed_timing_is_made_again(
    function: str, calls: int, untimed: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    """Stopped before the first file, between the files of a run, and between two runs."""
    original, made = getattr(time_all, function), []

    def killed(*arguments: Any) -> None:
        made.append(arguments)
        if len(made) == calls:
            raise KeyboardInterrupt
        original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(time_all, function, killed)
        with pytest.raises(KeyboardInterrupt):
            run_again(tiny_toml, untimed, patch)
    assert len({result.timed_together for result in read_results(untimed)}) == min(calls, 2)
    results = run_again(tiny_toml, untimed, monkeypatch)
    assert len({result.timed_together for result in results} - {None}) == 1
    assert not check_experiment(untimed).differences
    before = files(untimed)
    run_again(tiny_toml, untimed, monkeypatch)
    assert files(untimed) == before


def test_an_added_run_lets_all_be_timed_again(
    copy: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    shutil.rmtree(copy / ROWS[1])
    registry = json.loads((copy / "experiment.json").read_text())
    (copy / "experiment.json").write_text(json.dumps({**registry, "runs": [ROWS[0]]}))
    before = read_result(copy / ROWS[0]).timed_together
    assert before is not None
    assert not results_to_time(copy)
    caplog.set_level(logging.INFO, "compare")
    results = run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    assert len({result.timed_together for result in results} - {before, None}) == 1
    assert "timing 2 models in turn: luong, transformer" in caplog.text
    assert "timed again, to compare with what was added: luong" in caplog.text


@pytest.mark.usefixtures("without_plots")
def test_all_are_timed_again_on_request(copy: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str]):
    before, (session,) = read_results(copy), {result.timed_together for result in read_results(copy)}
    assert main(["run", str(tiny_toml), "--out", str(copy), "-q", "--time-again"]) == 0
    after = read_results(copy)
    (again,) = {result.timed_together for result in after}
    assert again not in (session, None)
    assert [(row.bleu, row.files["checkpoints/final.safetensors"], row.train_s) for row in after] == [
        (row.bleu, row.files["checkpoints/final.safetensors"], row.train_s) for row in before
    ]
    assert not check_experiment(copy).differences
    (copy / ROWS[0] / "checkpoints" / "final.safetensors").unlink()
    capsys.readouterr()
    assert main(["run", str(tiny_toml), "--out", str(copy), "-q", "--time-again"]) == 2
    assert f"{copy / ROWS[0]} has no weights, so it cannot be timed again" in capsys.readouterr().err
    assert {result.timed_together for result in read_results(copy)} == {again}


def test_a_mistake_forgets_no_timing(copy: Path, tiny_toml: Path):
    before = files(copy)
    command = ["run", str(tiny_toml), "--out", str(copy), "--time-again", "--set", "train.clip_norm=2"]
    assert main(command) == 2
    assert files(copy) == before


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
    change(untimed, ROWS[0], **changes)
    before = files(untimed / ROWS[0])
    time_all.time_all(untimed, settings, prepared)
    assert (read_result(untimed / ROWS[1]).timed_together is not None) is timed
    assert files(untimed / ROWS[0]) == before


def test_runs_without_weights_stay_as_they_are(
    untimed: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Such as published ones."""
    (untimed / ROWS[1] / "checkpoints" / "final.safetensors").unlink()
    before = files(untimed)
    run_again(tiny_toml, untimed, monkeypatch)
    assert f"{untimed / ROWS[1]} has no weights, so the models are not timed together" in caplog.text
    assert files(untimed) == before


def test_lack_of_memory_leaves_speeds_unknown(
    untimed: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(time_all, "_time_models", full)
        results = run_again(tiny_toml, untimed, patch)
    assert [(result.status, result.timed_together) for result in results] == [("done", None)] * 2
    assert "speeds are unknown: out of memory: CUDA out of memory; run this again to retry" in caplog.text
    assert None not in {result.timed_together for result in run_again(tiny_toml, untimed, monkeypatch)}


def test_training_is_timed_in_the_parts_of_its_batches(
    tiny_toml: Path, untimed: Path, prepared: PreparedData
):
    """An update of two parts that fit the memory moves the weights as one of the whole batch does."""
    whole, halves = (next(prepared.stream.global_batches(1, accumulate=parts)).parts for parts in (1, 2))
    assert (len(whole), len(halves)) == (1, 2)
    no_dropout = ["models.*.dropout=0", "models.transformer.attention_dropout=0"]
    moved = []
    for parts in (whole, halves):
        torch.manual_seed(0)
        run = resolve_models(load_experiment(tiny_toml, no_dropout))[1]
        criterion = TranslationLoss(build(run.model.architecture, *prepared.vocabulary_sizes), 0.1)
        optimizer = torch.optim.SGD(criterion.parameters(), lr=1.0)
        work = training_timing.training_work(criterion, optimizer, [parts], precision="fp32", clip_norm=1.0)
        work()
        moved.append(torch.cat([parameter.detach().flatten() for parameter in criterion.parameters()]))
    torch.testing.assert_close(*moved)
    config = untimed / ROWS[0] / "config.toml"
    config.write_text(config.read_text().replace("accumulate = 1", "accumulate = 2"))
    seen = []
    original = training_timing.train_step

    def record(criterion: Any, optimizer: Any, *parts: Any, **settings: Any) -> Any:
        seen.append(len(parts))
        return original(criterion, optimizer, *parts, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_timing, "train_step", record)
        time_all.time_all(untimed, resolve_models(load_experiment(tiny_toml))[0], prepared)
    assert set(seen) == {1, 2}
