"""Whole experiments: what a run leaves, that it repeats nothing, failures, seeds."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.experiment import run as run_all
from compare.experiment.run import run_experiment
from compare.results.records import read_speed
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results
from compare.scoring.score import corpus_bleu
from compare.system.log import Reporter
from compare.training.serialization import CHECKPOINTS, METRICS, STATE, load_state
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS, files
from tests.kits.training import metrics


@pytest.fixture(scope="module")
def mixed_toml(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row without attention, and one that diverges, of a few updates each."""
    text = tiny_toml.read_text().replace("max_updates = 90", "max_updates = 6")
    text = text.replace("learning_rate = 1e-2", "learning_rate = 1e38")
    text = text.replace('label = "luong"', 'label = "wild"')
    text = text.split('[[models]]\npreset = "transformer"')[0]
    text += '[[models]]\npreset = "lstm"\nembedding_size = 8\nhidden_size = 8\n'
    path = tmp_path_factory.mktemp("mixed") / "mixed.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def mixed(mixed_toml: Path) -> tuple[Path, int]:
    """The folder of that experiment, and the exit status of its run."""
    folder = mixed_toml.parent / "run"
    return folder, main(["run", str(mixed_toml), "--out", str(folder), "-q"])


def test_a_row_holds_all_that_the_plan_names(finished: Path, tiny_toml: Path):
    for row in ROWS:
        found = {path.name for path in (finished / row).iterdir()}
        assert found == {
            *("config.toml", "vocabulary.json", "metrics.jsonl", "checkpoints", "log.txt"),
            *("selection.json", "test.hyp", "perplexity.json", "speed.json", "result.json"),
        }
        result = json.loads((finished / row / "result.json").read_text())
        hypotheses = (finished / row / "test.hyp").read_text().splitlines()
        references = (tiny_toml.parent / "corpus" / "test.de").read_text().splitlines()
        assert result["bleu"] == pytest.approx(corpus_bleu(hypotheses, references))
    assert not list(finished.rglob("*.tmp"))
    view = [json.loads(line) for line in (finished / "results.jsonl").read_text().splitlines()]
    assert view == [json.loads((finished / row / "result.json").read_text()) for row in ROWS]
    assert json.loads((finished / "experiment.json").read_text())["runs"] == list(ROWS)


def test_the_figures_of_a_row_follow_from_its_files(finished: Path):
    """Speeds, tokens and sizes, computed again from metrics.jsonl and the weights."""
    for row in ROWS:
        result = json.loads((finished / row / "result.json").read_text())
        lines = [json.loads(line) for line in (finished / row / "metrics.jsonl").read_text().splitlines()]
        train = [line for line in lines if line["kind"] == "train"]
        assert result["tokens_seen"] == sum(line["src_tokens"] + line["tgt_tokens"] for line in train)
        share = result["train_tgt_tokens_per_s"] / result["train_tokens_per_s"]
        tgt, src = (sum(line[f"{side}_tokens"] for line in train[1:]) for side in ("tgt", "src"))
        assert share == pytest.approx(tgt / (src + tgt))
        assert 1 < result["epochs"] < 2
        assert result["updates"] == 90
        assert 0 < result["params_no_embedding"] < result["params"]
        raw = json.loads((finished / row / "speed.json").read_text())["timings"]
        (seconds,) = raw["train"]["seconds"]
        assert result["train_tokens_per_s"] == pytest.approx(raw["train"]["tokens"] / seconds)
        assert "train_tokens_per_s_low" not in result  # one repeat has no spread
        (seconds,) = raw["beam"]["seconds"]
        assert result["beam_sentences_per_s"] == pytest.approx(2 / seconds)
        assert result["decode_tokens_per_s"] == pytest.approx(raw["beam"]["tokens"] / seconds)
        assert result["latency_ms_p50"] == raw["latency"]["ms"][0][0]
        assert not {"latency_ms_p95", "train_mfu"} & result.keys()  # of one sentence; on a processor
        assert result["timed_together"] == raw["session"]["timed_together"]
        assert raw["session"]["timed_run"] == row
        assert result["decode_precision"] == "fp32"
        assert result["peak_memory_bytes"] > 10 * 2**20


def test_every_setting_is_written_out(finished: Path, tiny_toml: Path, tmp_path: Path):
    """A row's config.toml alone makes the same row again."""
    runs = resolve_models(load_experiment(tiny_toml))
    for run, name in zip(runs, ROWS, strict=True):
        path = finished / name / "config.toml"
        assert path.read_text() == run.to_toml()
        (again,) = resolve_models(load_experiment(path))
        assert again == run
        folder = RunFolder.read(finished / name)
        assert folder.run == run
        assert json.loads((finished / name / "result.json").read_text())["config_hash"] == folder.config_hash


def test_all_rows_of_an_experiment_train_on_the_same_batches(finished: Path):
    results = [json.loads((finished / row / "result.json").read_text()) for row in ROWS]
    assert len({result["batch_hash"] for result in results}) == 1
    assert len({result["data_hash"] for result in results}) == 1
    assert len({result["config_hash"] for result in results}) == 2
    assert {result["status"] for result in results} == {"done"}
    tokens = [
        [
            (line["src_tokens"], line["tgt_tokens"])
            for line in metrics(finished / row)
            if line["kind"] == "train"
        ]
        for row in ROWS
    ]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 90


@pytest.mark.usefixtures("without_plots")
def test_running_again_repeats_nothing(
    finished: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_all, "run_one", lambda *_: pytest.fail("a finished row is not run again"))
    monkeypatch.setattr(run_all, "prepare_data", lambda *_: pytest.fail("nothing needs data"))
    before = {row: files(finished / row) for row in ROWS}
    assert main(["run", str(tiny_toml), "--out", str(finished)]) == 0
    captured = capsys.readouterr()
    assert "all 2 runs have ended" in captured.err
    assert captured.out.startswith("| model")
    assert {row: files(finished / row) for row in ROWS} == before
    assert main(["run", str(tiny_toml), "--out", str(finished), "--json", "-q"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [row["label"] for row in json.loads(captured.out)] == ["luong", "transformer"]
    assert captured.out == (finished / "table.json").read_text()


def test_running_again_removes_what_a_process_left_that_was_killed_at_its_very_end(
    tiny_toml: Path, copy: Path
):
    locks = [copy / ".lock", copy / ROWS[0] / ".lock"]
    for lock in locks:
        lock.write_text('{"host": "here", "pid": 1}')
    run_experiment(load_experiment(tiny_toml), copy)
    assert not any(lock.exists() for lock in locks)


@pytest.mark.usefixtures("without_plots")
def test_one_failed_row_makes_status_1_and_is_shown(
    mixed: tuple[Path, int], mixed_toml: Path, capsys: pytest.CaptureFixture[str]
):
    folder, status = mixed
    capsys.readouterr()
    assert status == 1
    assert main(["run", str(mixed_toml), "--out", str(folder)]) == 1  # and it stays failed
    captured = capsys.readouterr()
    wild, lstm = captured.out.splitlines()[2:4]
    assert "failed: loss or gradient became NaN or infinite" in wild
    assert "failed" not in lstm
    record = json.loads((folder / "wild-seed1" / "result.json").read_text())
    assert "lower learning_rate (now 1e+38)" in record["reason"]
    assert "bleu" not in record
    assert not (folder / "wild-seed1" / "checkpoints" / "final.safetensors").exists()


def test_a_file_that_cannot_be_read_ends_one_run_only(
    run_tiny: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    finish = run_all.finish_run

    def finish_run(run: RunFolder, *others: Any) -> Result:
        if run.name == ROWS[0]:
            raise PermissionError("not readable")
        return finish(run, *others)

    monkeypatch.setattr(run_all, "finish_run", finish_run)
    with pytest.raises(PermissionError, match="not readable"):
        run_tiny(tmp_path / "run")
    assert [(row.run, row.status) for row in read_results(tmp_path / "run")] == [
        (ROWS[0], "unfinished"),
        (ROWS[1], "done"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes\nat x.cpp"),
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
    ],
)
def test_a_row_without_room_is_left_to_be_tried_again(
    error: Exception, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tried = []

    def full(row: RunFolder, *_: object) -> None:
        tried.append(row.name)
        raise error

    monkeypatch.setattr(run_all, "run_one", full)
    for _ in "ab":
        results = run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter(quiet=True))
        assert [result.status for result in results] == ["unfinished", "unfinished"]
        assert all(str(result.reason).startswith("out of memory: ") for result in results)
        assert not any("\n" in str(result.reason) for result in results)
    assert tried == [*ROWS, *ROWS]


def test_any_other_fault_of_torch_is_not_hidden(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def faulty(*_: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(run_all, "run_one", faulty)
    with pytest.raises(RuntimeError, match="mat1"):
        run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter(quiet=True))


def test_a_row_that_had_hardly_begun_begins_again(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "run" / ROWS[0]).mkdir(parents=True)
    (tmp_path / "run" / ROWS[0] / "vocabulary.json").write_text("half")
    monkeypatch.setattr(
        run_all, "run_one", lambda row, prepared, *_: run_all.unfinished_result(row, prepared)
    )
    run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter(quiet=True))
    assert (tmp_path / "run" / ROWS[0] / "vocabulary.json").read_text().startswith("{")
    assert (tmp_path / "run" / ROWS[0] / "config.toml").is_file()


def test_a_broken_plot_does_not_keep_the_table_from_being_shown(
    finished: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device", "plots/x.png")

    monkeypatch.setattr("compare.report.views.write_views", broken)
    assert main(["run", str(tiny_toml), "--out", str(finished), "-q"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("| model")
    assert captured.err == "error: plots/x.png: No space left on device\n"


def test_a_log_that_lost_lines_is_found_at_once(finished: Path, tiny_toml: Path, tmp_path: Path):
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    row = folder / ROWS[1]
    (row / "result.json").unlink()
    lines = (row / METRICS).read_text().splitlines(keepends=True)
    (row / METRICS).write_text("".join(lines[:-4]))
    state = load_state(row / CHECKPOINTS / STATE)
    assert state is not None
    with pytest.raises(ValueError, match=re.escape(f"{row / METRICS} covers ") + r"\d+ of the 90 updates"):
        run_experiment(load_experiment(tiny_toml), folder)


SHORT = ("train.max_updates=4", "train.valid_every=4")


@pytest.fixture(scope="module")
def seeded(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds") / "run"
    run_experiment(load_experiment(tiny_toml, SHORT), folder, Reporter(quiet=True), seeds=(1, 2))
    return folder


def test_each_model_is_trained_from_each_seed(seeded: Path):
    names = ["luong-seed1", "transformer-seed1", "luong-seed2", "transformer-seed2"]
    assert json.loads((seeded / "experiment.json").read_text())["runs"] == names
    rows = [json.loads((seeded / name / "result.json").read_text()) for name in names]
    assert [row["seed"] for row in rows] == [1, 1, 2, 2]
    assert rows[0]["batch_hash"] == rows[1]["batch_hash"] != rows[2]["batch_hash"] == rows[3]["batch_hash"]
    assert len({row["data_hash"] for row in rows}) == 1


def test_a_seed_beside_others_is_that_seed_alone(seeded: Path, tiny_toml: Path, tmp_path: Path):
    experiment = load_experiment(tiny_toml, (*SHORT, "train.seed=2"))
    run_experiment(experiment, tmp_path / "alone", Reporter(quiet=True))
    for name in ("luong-seed2", "transformer-seed2"):
        for file in ("checkpoints/final.safetensors", "config.toml"):
            assert (seeded / name / file).read_bytes() == (tmp_path / "alone" / name / file).read_bytes()


@pytest.mark.usefixtures("without_plots")
def test_more_seeds_are_added_to_what_is_done(
    seeded: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str]
):
    before = {path: path.read_bytes() for path in seeded.glob("*/*/final.safetensors")}
    rows = {path: read_result(path.parent) for path in seeded.glob("*/result.json")}
    settings = [part for setting in SHORT for part in ("--set", setting)]
    assert main(["run", str(tiny_toml), "--out", str(seeded), "--seeds", "2,3", *settings]) == 0
    assert "luong-seed3" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len(list(seeded.glob("*/result.json"))) == 6
    for path, row in rows.items():  # all models were timed again, in turn with the added ones
        again = read_result(path.parent)
        assert again.timed_together != row.timed_together
        assert (again.bleu, again.updates, again.train_s) == (row.bleu, row.updates, row.train_s)


def test_the_seeds_of_a_model_share_the_speeds_of_its_lowest(seeded: Path):
    for label in ("luong", "transformer"):
        one, other = (read_speed(seeded / f"{label}-seed{seed}" / "speed.json") for seed in (1, 2))
        assert one.timings == other.timings
        assert one.timings is not None
        assert one.timings.session is not None
        assert one.timings.session.timed_run == f"{label}-seed1"
        assert one.decode_s != other.decode_s
    assert len({result.timed_together for result in read_results(seeded)} - {None}) == 1
    assert not check_experiment(seeded).differences


@pytest.mark.parametrize("text", ["1,1", "a", "-1"])
def test_what_are_no_seeds(text: str, tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    said = refusal("run", tiny_toml, "--out", tmp_path / "run", f"--seeds={text}")
    assert said == f"--seeds {text}: must be different whole numbers from 0 on, such as 1,2,3"
    assert not (tmp_path / "run").exists()
