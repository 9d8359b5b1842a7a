"""Whole experiments: what a run leaves behind and draws, and that it repeats nothing."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.experiment import dry_run as estimate
from compare.experiment import run as run_all
from compare.experiment.dry_run import dry_run, estimate_experiment
from compare.experiment.run import run_experiment
from compare.report.figures import find_runs
from compare.report.score_tables import render_estimates
from compare.report.views import draw_plots
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from compare.scoring.score import corpus_bleu
from compare.system.log import Reporter
from tests.kits.runs import ROWS, files


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


# --- what a run leaves


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


# --- the command


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
    assert captured.out.endswith("\n")
    assert not captured.out.endswith("\n\n")
    assert {row: files(finished / row) for row in ROWS} == before
    assert main(["run", str(tiny_toml), "--out", str(finished), "--json", "-q"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [row["label"] for row in json.loads(captured.out)] == ["luong", "transformer"]
    assert captured.out == (finished / "table.json").read_text()
    assert main(["table", str(finished), "--columns", "label,bleu", "--form", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "label,bleu"


def test_running_again_removes_what_a_process_left_that_was_killed_at_its_very_end(
    tiny_toml: Path, copy: Path
):
    locks = [copy / ".lock", copy / ROWS[0] / ".lock"]
    for lock in locks:
        lock.write_text('{"host": "here", "pid": 1}')
    run_experiment(load_experiment(tiny_toml), copy)
    assert not any(lock.exists() for lock in locks)


def test_a_dry_run_checks_everything_and_writes_nothing(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_all, "run_one", lambda *_: pytest.fail("a dry run starts nothing"))
    assert main(["run", str(tiny_toml), "--dry-run"]) == 0
    captured = capsys.readouterr()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in captured.out.splitlines()[2:4]]
    assert [row[:2] for row in rows] == [[name, "new"] for name in ROWS]
    assert [row[4:6] for row in rows] == [["90", "90"]] * 2
    assert "all runs: about" in captured.out
    assert "batches per epoch" in captured.err
    assert main(["run", str(tiny_toml), "--dry-run", "-q", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    runs = json.loads(captured.out)
    assert [run["name"] for run in runs] == list(ROWS)
    assert all(run["train_s"] > 0 and run["memory_bytes"] == 16 * run["params"] for run in runs)
    assert not list(tmp_path.iterdir())


def test_an_estimate_counts_what_is_left_and_only_that(copy: Path, tiny_toml: Path):
    """A run that has ended, one that was stopped at update 40 of 90, and a new one."""
    (copy / ROWS[1] / "result.json").unlink()
    log = copy / ROWS[1] / "metrics.jsonl"
    lines = [line for line in log.read_text().splitlines() if json.loads(line)["update"] <= 40]
    log.write_text("\n".join(lines) + "\n")
    done, stopped, *new = estimate_experiment(load_experiment(tiny_toml), copy, seeds=[1, 2])
    truth = json.loads((copy / ROWS[0] / "result.json").read_text())
    assert (done.name, done.status, done.updates_left, done.train_s) == (ROWS[0], "done", 0, 0)
    assert done.params == truth["params"]
    averaged = estimate_experiment(load_experiment(tiny_toml, ["train.ema=0.9"]), copy.parent / "new")[0]
    assert averaged.memory_bytes == 5 * done.memory_bytes / 4
    assert (stopped.status, stopped.updates, stopped.updates_left) == ("unfinished", 90, 50)
    assert [(run.status, run.updates_left) for run in new] == [("new", 90)] * 2
    assert stopped.train_s == pytest.approx(new[1].train_s * 50 / 90)


def test_a_model_that_is_too_large_for_a_short_look_is_not_timed(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(estimate, "fresh_update_work", lambda *_: pytest.fail("a model is built"))
    for name in ("MAX_CPU_BYTES", "MAX_SENTENCE_PARTS"):
        with monkeypatch.context() as patch:
            patch.setattr(estimate, name, 0)
            found = estimate_experiment(load_experiment(tiny_toml), tmp_path / "run")
        assert [run.train_s for run in found] == [None, None]
        assert "training: unknown where" in render_estimates(found)


def test_a_run_that_goes_on_says_from_where(
    copy: Path, tiny_toml: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    (copy / ROWS[0] / "result.json").unlink()
    with caplog.at_level("INFO", logger="compare"):
        run_experiment(load_experiment(tiny_toml), copy, only=["luong"])
    assert f"{ROWS[0]}: continues from update 90 of 90" in caplog.messages
    assert not [text for text in caplog.messages if text.startswith(ROWS[1])]


def test_a_dry_run_of_a_finished_folder_changes_nothing(finished: Path, tiny_toml: Path):
    before = files(finished)
    rows = dry_run(load_experiment(tiny_toml), finished)
    assert [row.name for row in rows] == list(ROWS)
    assert files(finished) == before


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
    assert main(["table", str(folder), "--form", "csv"]) == 0
    assert "failed" in capsys.readouterr().out


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


def test_a_second_seed_joins_the_rows_of_the_first(
    finished: Path, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    monkeypatch.setattr(run_all, "run_one", lambda row, *_: run_all.unfinished_result(row, _[0]))
    experiment = load_experiment(tiny_toml, ["train.seed=2"])
    asked = run_experiment(experiment, copy, Reporter(quiet=True))
    assert [(result.label, result.seed) for result in asked] == [("luong", 2), ("transformer", 2)]
    results = read_results(copy)
    assert [(row.label, row.seed, row.status) for row in results] == [
        ("luong", 1, "done"),
        ("transformer", 1, "done"),
        ("luong", 2, "unfinished"),
        ("transformer", 2, "unfinished"),
    ]
    assert results[0].batch_hash != results[2].batch_hash
    assert results[0].data_hash == results[2].data_hash


# --- plots


def test_heat_maps_where_there_is_attention(
    mixed: tuple[Path, int], finished: Path, caplog: pytest.LogCaptureFixture
):
    plots = {path.name for path in (mixed[0] / "plots").iterdir()}
    curves = {f"learning-curves{kind}.{form}" for kind in ("", "-seconds") for form in ("png", "svg")}
    assert plots == curves  # the lstm has no attention, and what failed has no weights
    with caplog.at_level("INFO", logger="compare"):
        plotted = draw_plots(finished)
    maps = {f"attention-{name}-line1.{form}" for name in ("luong", "transformer") for form in ("png", "svg")}
    assert {path.name for path in plotted} == curves | maps
    assert caplog.messages == []
    for path in plotted:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
    words = (finished / "plots" / "attention-luong-line1.svg").read_text()
    assert all(f">{word}<" in words for word in (finished / "test.src").read_text().splitlines()[0].split())


def test_seeds_have_curves_and_heat_maps_of_their_own(finished: Path, tmp_path: Path):
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    other = Path(shutil.copytree(copy / ROWS[0], copy / "luong-seed2"))
    result = json.loads((other / "result.json").read_text())
    (other / "result.json").write_text(json.dumps({**result, "seed": 2}))
    names = {path.name for path in draw_plots(copy)}
    assert {f"attention-luong-seed{seed}-line1.svg" for seed in (1, 2)} < names


def test_an_experiment_may_keep_its_config_in_its_folder(copy: Path, tiny_toml: Path):
    shutil.copyfile(tiny_toml, copy / "config.toml")
    assert list(find_runs(copy)) == ["luong", "transformer"]


def test_nothing_to_plot_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "lstm-seed1").mkdir()
    (tmp_path / "lstm-seed1" / "config.toml").touch()
    with caplog.at_level("INFO", logger="compare"):
        assert draw_plots(tmp_path) == []
    assert caplog.messages == [f"{tmp_path}: no finished run to plot"]
