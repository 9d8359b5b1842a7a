"""One folder: other experiments are refused, several processes share it."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.experiment import run as run_all
from compare.experiment.open_runs import choose_models, locked_for_setup, open_run
from compare.experiment.run import run_experiment
from compare.report.result_table import refresh_views, write_views
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from compare.system.log import Reporter
from data.locks import lock_folder
from tests.kits.common import ROWS, Refusal, files

TOML = """
[train]
device = "cpu"
[[models]]
preset = "lstm"
dropout = [0.1, 0.2]
[[models]]
preset = "bahdanau"
"""


@pytest.mark.parametrize(
    ("only", "expected"),
    [((), [0, 1, 2]), (("lstm-*",), [0, 1]), (("bahdanau", "*-0.1"), [0, 2]), (("lstm",), None)],
)
def test_only_chooses_models_by_their_labels(tmp_path: Path, only: Sequence[str], expected: list[int] | None):
    path = tmp_path / "grid.toml"
    path.write_text(TOML)
    models = resolve_models(load_experiment(path))
    if expected is None:
        with pytest.raises(ValueError, match="--only: no model is labelled 'lstm'"):
            choose_models(models, only)
    else:
        assert choose_models(models, only) == [models[index] for index in expected]


@pytest.mark.parametrize(
    ("override", "key"),
    [("train.clip_norm=3", "clip_norm"), ("data.src=fr", "src"), ("train.max_updates=99", "max_updates")],
)
def test_another_experiment_in_the_same_folder_is_refused(
    finished: Path, run_tiny: Callable[..., Path], override: str, key: str
):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(ValueError, match=f"holds another experiment .*{key} = ") as caught:
        run_tiny(finished, override)
    assert "\n" not in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


@pytest.mark.usefixtures("without_plots")
def test_a_corpus_that_has_moved_goes_on(copy: Path, tiny_toml: Path, tmp_path: Path):
    """Finished runs stay as they are; one that has to go on names the new place."""
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "moved"))
    (again, moved), former = (copy / row for row in ROWS), tiny_toml.parent / "corpus"
    (again / "result.json").unlink()
    before = files(moved)
    assert main(["run", str(tiny_toml), "--out", str(copy), "-q", "--set", f"data.root={root}"]) == 0
    assert [RunFolder.read(run).run.data.root for run in (again, moved)] == [str(root), str(former)]
    changed = {path for path, content in files(moved).items() if before.get(path) != content}
    assert {Path(path).name for path in changed} <= {"result.json", "speed.json"}  # timed together again


@pytest.mark.usefixtures("without_plots")
def test_tables_of_two_places_of_a_corpus(copy: Path, third_model: Path, tiny_toml: Path, tmp_path: Path):
    """Finished runs name where it was, and the one that was added where it is."""
    root = tiny_toml.parent / "corpus"
    for row in ROWS:
        config = copy / row / "config.toml"
        config.write_text(config.read_text().replace(root.as_posix(), (tmp_path / "gone").as_posix()))
    assert main(["run", str(third_model), "--out", str(copy)]) == 0
    assert "No intervals" not in (copy / "table.md").read_text()


def test_timings_may_be_repeated_more_often(copy: Path, run_tiny: Callable[..., Path]):
    before = files(copy / ROWS[0])
    run_tiny(copy, "bench.repeats=7")
    assert files(copy / ROWS[0]) == before  # finished runs stay as they are


def test_initial_weights_that_have_moved_are_found_by_their_hash(copy: Path, tiny_toml: Path):
    run = RunFolder.read(copy / ROWS[0])
    there, here = (
        replace(run.run, train=replace(run.run.train, init_from=path, init_hash="5" * 64))
        for path in ("/former/place", "/new/place")
    )
    run.config.write_text(there.to_toml())
    assert open_run(here, copy).status == "done"
    other = replace(here, train=replace(here.train, init_hash="6" * 64))
    with pytest.raises(ValueError, match="holds another experiment"):
        open_run(other, copy)


def test_other_data_in_the_same_folder_is_refused(
    copy: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    """Another seed makes rows of other names, but the text and its hash must stay."""
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    (root / "valid.de").write_text((root / "valid.de").read_text().replace("Hund", "Wolf"))
    settings = ("--set", f"data.root={root.as_posix()}", "--set", "train.seed=2")
    before = files(copy)
    for more in ([], ["--dry-run"]):
        message = refusal("run", tiny_toml, "--out", copy, "-q", *settings, *more)
        assert "was begun with other data (data_hash " in message
        assert files(copy).keys() == before.keys()


@pytest.fixture
def third_model(tiny_toml: Path, tmp_path: Path) -> Path:
    """The tiny experiment with a further model only."""
    text = tiny_toml.read_text()
    path = tmp_path / "third.toml"
    path.write_text(text.split("[[models]]")[0] + '[[models]]\npreset = "lstm"\nhidden_size = 8\n')
    return path


def test_a_row_of_other_settings_is_refused(third_model: Path, copy: Path, refusal: Refusal):
    before = sorted(copy.rglob("*"))
    for dry_run in (["--dry-run"], []):
        message = refusal("run", third_model, "--out", copy, "--set", "decode.max_ratio=1.5", *dry_run)
        assert f"{copy} holds runs with other settings (luong-seed1 has decode.max_ratio: " in message
        assert "here 1.5" in message
    assert sorted(copy.rglob("*")) == before


@pytest.mark.usefixtures("without_plots")
def test_a_row_of_the_same_settings_joins(third_model: Path, copy: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(third_model), "--out", str(copy), "--set", "bench.repeats=2"]) == 0
    assert "Warning: these rows" not in capsys.readouterr().out
    rows = [json.loads(line) for line in (copy / "results.jsonl").read_text().splitlines()]
    assert len({row["settings_hash"] for row in rows}) == 1
    assert len(rows) == 3


def test_settings_that_another_process_recorded_are_refused(
    third_model: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Two processes that begin at once see no config.toml of each other, but the one experiment.json."""
    registry = json.loads((copy / "experiment.json").read_text())
    other = {**registry, "runs": ["a-seed1"], "settings_hash": "5" * 64}
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "experiment.json").write_text(json.dumps(other))
    assert main(["run", str(third_model), "--out", str(begun)]) == 2
    assert "(settings_hash 555555555555, here " in capsys.readouterr().err.splitlines()[-1]
    assert not (begun / "lstm-seed1").exists()


def test_a_row_that_lost_its_config_is_not_wiped(copy: Path, tiny_toml: Path):
    (copy / ROWS[0] / "config.toml").unlink()
    (copy / ROWS[0] / "result.json").unlink()
    before = files(copy)
    with pytest.raises(ValueError, match=r"has checkpoints but no config\.toml"):
        run_experiment(load_experiment(tiny_toml), copy, Reporter())
    assert files(copy) == before


def encode_what_is_wrong(folder: Path) -> None:
    with locked_for_setup(folder):
        (folder / "encoded" / "mine").mkdir(parents=True)
        raise ValueError("wrong")


def test_a_mistake_removes_what_it_has_made(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    with pytest.raises(ValueError, match="wrong"):
        encode_what_is_wrong(folder)
    assert not list(tmp_path.iterdir())


def test_a_mistake_leaves_what_another_process_encodes_while_this_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The other one has the lock when this one begins, so nothing is encoded yet."""
    folder = tmp_path / "run"

    def lock_later(path: Path, *, wait: bool) -> object:
        other = path / "encoded" / "others"
        other.mkdir(parents=True)
        (other / "train.npy").write_text("ids")
        return lock_folder(path, wait=wait)

    monkeypatch.setattr("compare.experiment.open_runs.lock_folder", lock_later)
    with pytest.raises(ValueError, match="wrong"):
        encode_what_is_wrong(folder)
    assert sorted(files(folder)) == [
        folder / name for name in ("encoded", "encoded/others", "encoded/others/train.npy")
    ]


@pytest.mark.usefixtures("without_plots")
def test_tables_that_a_stopped_call_left_behind_are_found_stale(
    copy: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    write_views(copy)
    finish = Mock(wraps=run_all.finish_run, side_effect=[DEFAULT, KeyboardInterrupt])
    monkeypatch.setattr(run_all, "finish_run", finish)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(load_experiment(tiny_toml), copy, seeds=[1, 2])
    refresh_views(copy)
    assert len(json.loads((copy / "table.json").read_text())) == len(read_results(copy)) > 2


# Several processes, and interrupted ones.


def test_a_row_in_use_is_left_out_and_named(
    copy: Path, tiny_toml: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    (copy / ROWS[0] / "result.json").unlink()

    def locked(path: Path, *, wait: bool = False) -> object:
        if path == copy / ROWS[0]:
            raise run_all.Locked(f"{path} is in use by process 7 on 'elsewhere'")
        return lock_folder(path, wait=wait)

    monkeypatch.setattr(run_all, "lock_folder", locked)
    results = run_experiment(load_experiment(tiny_toml), copy)
    assert [result.status for result in results] == ["unfinished", "done"]
    assert "left out" in caplog.text
    assert "process 7" in caplog.text
