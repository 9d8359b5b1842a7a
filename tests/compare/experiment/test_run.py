"""Whole experiments: what a run leaves, that it repeats nothing, failures, seeds; dry runs."""

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest
import sacrebleu

from compare import load_finished, score_tests
from compare.cli import main
from compare.config.parse import load_experiment
from compare.decoding.translator import Translation, Translator
from compare.experiment import estimate
from compare.experiment import run as run_all
from compare.experiment.compute_result import unfinished_result
from compare.experiment.run import estimate_experiment, run_experiment
from compare.results.records import read_speed
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results
from compare.system.log import Reporter
from tests.kits.common import ROWS, files
from tests.kits.training import metrics

SHORT = ("train.max_updates=4", "train.valid_every=4")


def test_bleu_into_chinese_is_that_of_sacrebleus_tokenizer(tiny_toml: Path, tmp_path: Path, monkeypatch):
    """In validation, in the choice of the length penalty, in the result and in the tests of significance."""
    for split, number in (("train", 60), ("valid", 8), ("test", 8)):
        (tmp_path / f"{split}.en").write_text("".join(f"sentence {n}\n" for n in range(number)))
        lines = "".join(f"这是今天的第{n}个句子。\n" for n in range(number))
        (tmp_path / f"{split}.zh").write_text(lines, encoding="utf-8")
    translations = [f"这是今天第{n}个好的句子。" for n in range(8)]
    best = [Translation(text, 0.0, []) for text in translations]
    monkeypatch.setattr(
        Translator, "translate_all", lambda *arguments, **_: [best] * len((arguments[2:] or [[1]])[0])
    )
    data = [f"data.root={tmp_path.as_posix()}", "data.tgt=zh", "train.max_updates=2", "train.valid_every=2"]
    experiment = load_experiment(tiny_toml, [*data, "decode.length_penalties=[0, 1, 2]"])
    (result,) = run_experiment(experiment, tmp_path / "out", only=["luong"], timing=False)
    folder = tmp_path / "out" / result.run
    references = (tmp_path / "test.zh").read_text(encoding="utf-8").splitlines()
    expected = sacrebleu.corpus_bleu(translations, [references], tokenize="zh").score
    assert expected > 20 > sacrebleu.corpus_bleu(translations, [references]).score
    counts = score_tests(load_finished(tmp_path / "out"))["test"].models["luong"][1]
    chosen = [point["bleu"] for point in json.loads((folder / "selection.json").read_text())["grid"]]
    assert "tok:zh" in str(result.bleu_signature)
    assert [result.bleu, counts.score, metrics(folder)[-1]["bleu"], *chosen] == pytest.approx([expected] * 6)


@pytest.mark.usefixtures("without_plots")
def test_running_again_repeats_nothing(
    finished: Path, tiny_toml: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_all, "run_model", lambda *_: pytest.fail("a finished row is not run again"))
    monkeypatch.setattr(run_all, "prepare_data", lambda *_: pytest.fail("nothing needs data"))
    before = {row: files(finished / row) for row in ROWS}
    assert main(["run", str(tiny_toml), "--out", str(finished)]) == 0
    captured = capsys.readouterr()
    assert "all 2 runs have ended" in captured.err
    assert "\nmore columns and conditions:\n" in captured.out
    assert {row: files(finished / row) for row in ROWS} == before
    assert main(["run", str(tiny_toml), "--out", str(finished), "--json", "-q"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [row["label"] for row in json.loads(captured.out)] == ["luong", "transformer"]
    assert captured.out == (finished / "table.json").read_text()


@pytest.mark.usefixtures("without_plots")
def test_one_failed_row_makes_status_1_and_is_shown(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A row without attention, and one that diverges, of a few updates each."""
    text = tiny_toml.read_text().replace("max_updates = 90", "max_updates = 6")
    text = text.replace("learning_rate = 1e-2", "learning_rate = 1e38")
    text = text.replace('label = "luong"', 'label = "wild"')
    text = text.split('[[models]]\npreset = "transformer"')[0]
    text += '[[models]]\npreset = "lstm"\nembedding_size = 8\nhidden_size = 8\n'
    path, folder = tmp_path / "mixed.toml", tmp_path / "run"
    path.write_text(text)
    assert main(["run", str(path), "--out", str(folder), "-q"]) == 1
    assert main(["run", str(path), "--out", str(folder), "-q", "--only", "lstm"]) == 0
    capsys.readouterr()
    assert main(["run", str(path), "--out", str(folder)]) == 1  # and it stays failed
    captured = capsys.readouterr()
    shown = " ".join(captured.out.split())
    assert "! runs that failed or have not ended: wild seed 1 (failed: loss or gradient became NaN" in shown
    record = json.loads((folder / "wild-seed1" / "result.json").read_text())
    assert "lower learning_rate (now 1e+38)" in record["reason"]
    assert "bleu" not in record
    assert not (folder / "wild-seed1" / "checkpoints" / "final.safetensors").exists()


def test_a_file_that_cannot_be_read_ends_one_run_only(
    run_tiny: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    finish = Mock(wraps=run_all.finish_run, side_effect=[PermissionError("not readable"), DEFAULT])
    monkeypatch.setattr(run_all, "finish_run", finish)
    with pytest.raises(PermissionError, match="not readable"):
        run_tiny(tmp_path / "run", *SHORT)
    assert [(row.run, row.status) for row in read_results(tmp_path / "run")] == [
        (ROWS[0], "unfinished"),
        (ROWS[1], "done"),
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 bytes\nat x.cpp"), "out of memory: "),
        (RuntimeError("could not create a primitive"), "out of memory: "),
        (ImportError("libjpeg.so: failed to map segment from shared object"), "out of memory: "),
        (MemoryError(), "out of memory: "),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "RuntimeError: mat1 and mat2"),
    ],
)
def test_a_row_that_torch_ends_is_left_to_be_tried_again_and_the_others_go_on(
    error: Exception, reason: str, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tried = []

    def full(row: RunFolder, *_: object) -> None:
        tried.append(row.name)
        raise error

    monkeypatch.setattr(run_all, "run_model", full)
    for _ in "ab":
        results = run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter())
        assert [result.status for result in results] == ["unfinished", "unfinished"]
        assert all(str(result.reason).startswith(reason) for result in results)
        assert not any("\n" in str(result.reason) for result in results)
    assert tried == [*ROWS, *ROWS]
    assert "test_run.py" in (tmp_path / "run" / ROWS[0] / "log.txt").read_text()  # the traceback is logged


def test_a_row_that_had_hardly_begun_begins_again(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "run" / ROWS[0]).mkdir(parents=True)
    (tmp_path / "run" / ROWS[0] / "vocabulary.json").write_text("half")
    monkeypatch.setattr(run_all, "run_model", lambda row, prepared, *_: unfinished_result(row, prepared))
    run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter())
    assert (tmp_path / "run" / ROWS[0] / "vocabulary.json").read_text().startswith("{")
    assert (tmp_path / "run" / ROWS[0] / "config.toml").is_file()


@pytest.fixture(scope="module")
def seeded(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds") / "run"
    run_experiment(load_experiment(tiny_toml, SHORT), folder, Reporter(), seeds=(1, 2))
    return folder


def test_a_seed_beside_others_is_that_seed_alone(seeded: Path, tiny_toml: Path, tmp_path: Path):
    names = ["luong-seed1", "transformer-seed1", "luong-seed2", "transformer-seed2"]
    rows = read_results(seeded)
    assert [row.run for row in rows] == names
    assert rows[0].batch_hash == rows[1].batch_hash != rows[2].batch_hash == rows[3].batch_hash
    experiment = load_experiment(tiny_toml, (*SHORT, "train.seed=2"))
    run_experiment(experiment, tmp_path / "alone", Reporter())
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
    for label in ("luong", "transformer"):
        speeds = [read_speed(seeded / f"{label}-seed{seed}" / "speed.json").timings for seed in (1, 2, 3)]
        assert speeds[0] == speeds[1] == speeds[2]
        assert speeds[0] is not None
    for path, row in rows.items():  # all models were timed again, in turn with the added ones
        again = read_result(path.parent)
        assert again.timed_together != row.timed_together
        assert (again.bleu, again.updates, again.train_s) == (row.bleu, row.updates, row.train_s)


def test_a_dry_run_checks_everything_and_writes_nothing(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_all, "run_model", lambda *_: pytest.fail("a dry run starts nothing"))
    assert main(["run", str(tiny_toml), "--dry-run"]) == 0
    captured = capsys.readouterr()
    rows = [line.split() for line in captured.out.splitlines()[1:3]]
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


def test_a_long_training_begins_with_its_duration(
    tiny_toml: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level("INFO")
    for name in ("run_each", "time_all"):
        monkeypatch.setattr(run_all, name, lambda *_: None)
    for limit, announced in ((1e99, False), (0.0, True)):
        monkeypatch.setattr(estimate, "LONG_FLOPS", limit)
        run_experiment(load_experiment(tiny_toml), tmp_path / "run", Reporter())
        assert ("2 runs: about " in caplog.text) == announced


def test_an_estimate_counts_what_is_left_and_only_that(copy: Path, tiny_toml: Path):
    """A run that has ended, one that was stopped at update 40 of 90, and a new one."""
    before = files(copy)
    estimates = estimate_experiment(load_experiment(tiny_toml), copy)
    assert [(run.name, run.train_s) for run in estimates] == [(name, 0) for name in ROWS]
    assert files(copy) == before
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
    budgets = load_experiment(tiny_toml, ["train.budgets=[60,90]", "models.*.warmup_updates=5"])
    runs = estimate_experiment(budgets, copy.parent / "budgets")
    assert [run.updates_left for run in runs] == [60, 90 - 48] * 2
