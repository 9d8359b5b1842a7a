"""One folder: other experiments are refused, longer ones continue, several processes share it."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.experiment import folder as folder_module
from compare.experiment import run as run_all
from compare.experiment.dry_run import estimate_experiment
from compare.experiment.folder import choose_models, is_begun_shorter, locked_for_setup
from compare.experiment.run import run_experiment
from compare.report.table import refresh_views, write_views
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from compare.system.locks import lock_folder
from compare.system.log import Reporter
from compare.training.log import read_metrics
from data.files import hash_file, write_atomically
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS, files

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


@pytest.mark.parametrize(("override", "key"), [("train.clip_norm=3", "clip_norm"), ("data.src=fr", "src")])
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
    (again, kept), former = (copy / row for row in ROWS), tiny_toml.parent / "corpus"
    (again / "result.json").unlink()
    before = files(kept)
    assert main(["run", str(tiny_toml), "--out", str(copy), "-q", "--set", f"data.root={root}"]) == 0
    assert [RunFolder.read(run).run.data.root for run in (again, kept)] == [str(root), str(former)]
    changed = {path for path, content in files(kept).items() if before.get(path) != content}
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
    assert files(copy / ROWS[0]) == before  # what is done stays


def test_initial_weights_that_have_moved_are_found_by_their_hash(copy: Path, tiny_toml: Path):
    run = RunFolder.read(copy / ROWS[0])
    there, here = (
        replace(run.run, train=replace(run.run.train, init_from=path, init_hash="5" * 64))
        for path in ("/former/place", "/new/place")
    )
    run.config.write_text(there.to_toml())
    assert not is_begun_shorter(replace(run, run=here))
    other = replace(here, train=replace(here.train, init_hash="6" * 64))
    with pytest.raises(ValueError, match="holds another experiment"):
        is_begun_shorter(replace(run, run=other))


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

    monkeypatch.setattr("compare.experiment.folder.lock_folder", lock_later)
    with pytest.raises(ValueError, match="wrong"):
        encode_what_is_wrong(folder)
    assert sorted(files(folder)) == [
        folder / name for name in ("encoded", "encoded/others", "encoded/others/train.npy")
    ]


# A larger ``train.max_updates`` continues the runs of a folder, to what training from the start gives.
SETTINGS = (
    *("models.*.schedule=inverse-sqrt", "train.valid_every=4"),
    *("train.average=2", "train.average_every=3", "train.ema=0.9"),
)
TIMES = ("seconds", "data_s", "train_s", "tokens_per_s", "validation_s", "checkpoint_s", "joules")


@pytest.fixture(scope="module")
def short(run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("short") / "run", *SETTINGS, "train.max_updates=8")


@pytest.fixture
def folder(short: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(short, tmp_path / "run"))


def log_of(run: Path) -> list[dict[str, object]]:
    lines = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


@pytest.mark.slow
def test_it_equals_training_from_the_start_also_after_a_kill(
    folder: Path,
    run_tiny: Callable[..., Path],
    tiny_toml: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Killed when one of two runs has its new settings: nobody mixes them, and the same call goes on."""
    long = run_tiny(tmp_path / "long", *SETTINGS, "train.max_updates=14")
    longer = load_experiment(tiny_toml, [*SETTINGS, "train.max_updates=14"])
    planned = estimate_experiment(longer, folder, timed=False)
    assert [(each.status, each.updates_left) for each in planned] == [("unfinished", 6)] * 2
    killed = folder / ROWS[1] / "config.toml"

    def write(path: Path, content: str | bytes) -> None:
        if path == killed:
            raise KeyboardInterrupt
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "write_atomically", write)
        with pytest.raises(KeyboardInterrupt):
            run_tiny(folder, *SETTINGS, "train.max_updates=14")
    assert [RunFolder.read(folder / name).run.train.max_updates for name in ROWS] == [14, 8]
    with pytest.raises(ValueError, match="holds another experiment"):
        run_tiny(folder, *SETTINGS, "train.max_updates=8")
    run_tiny(folder, *SETTINGS, "train.max_updates=14")
    for name in ROWS:
        for file in ("config.toml", "test.hyp", "selection.json", "checkpoints/final.safetensors"):
            assert hash_file(folder / name / file) == hash_file(long / name / file), file
        assert log_of(folder / name) == log_of(long / name)
    for row, other in zip(read_results(folder), read_results(long), strict=True):
        assert (row.status, row.bleu, row.updates) == ("done", other.bleu, 14)
        assert row.settings_hash == other.settings_hash
    assert not check_experiment(folder).differences
    before = files(folder / ROWS[0])
    run_tiny(folder, *SETTINGS, "train.max_updates=14")  # nothing is left to do
    assert files(folder / ROWS[0]) == before


def test_nothing_is_lengthened_while_one_run_is_in_use(
    folder: Path, run_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    def locked(path: Path, *, wait: bool = False) -> object:
        if path == folder / ROWS[1]:
            raise run_all.Locked(f"{path} is in use by process 7")
        return lock_folder(path, wait=wait)

    monkeypatch.setattr(folder_module, "lock_folder", locked)
    with pytest.raises(run_all.Locked):
        run_tiny(folder, *SETTINGS, "train.max_updates=14")
    assert [result.status for result in read_results(folder)] == ["done", "done"]


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


def test_what_cannot_be_continued_is_refused(
    folder: Path, run_tiny: Callable[..., Path], tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    def refused(out: Path, *settings: str) -> str:
        words = [word for each in (*settings, "train.max_updates=14") for word in ("--set", each)]
        return refusal("run", tiny_toml, "--out", out, "-q", *words)

    before = files(folder)
    words = [word for each in (*SETTINGS, "train.max_updates=14") for word in ("--set", each)]
    said = refusal("run", tiny_toml, "--out", folder, "-q", *words, "--only", "luong")
    assert "has train.max_updates: 8, here 14" in said
    assert files(folder) == before
    (folder / ROWS[1] / "checkpoints" / "trainer.pt").unlink()
    assert "cannot be continued to 14: it has no checkpoints/trainer.pt" in refused(folder, *SETTINGS)
    other = run_tiny(tmp_path / "other", "train.max_updates=4", "train.valid_every=3")
    assert "schedule = 'linear' has lowered the learning rate" in refused(other, "train.valid_every=3")
    flat = run_tiny(tmp_path / "flat", SETTINGS[0], "train.max_updates=4", "train.valid_every=3")
    said = refused(flat, SETTINGS[0], "train.valid_every=3")
    assert "its last validation is no multiple of train.valid_every = 3" in said
    for row in ROWS:
        shutil.rmtree(flat / row)
    refused(flat, SETTINGS[0], "train.valid_every=3")  # experiment.json is of four updates


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
