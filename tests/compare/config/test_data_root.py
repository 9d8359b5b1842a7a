"""A relative ``data.root``: of a TOML file, of ``--set``, and in the config.toml of a run."""

import shutil
from pathlib import Path

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.config.toml import SCHEMA
from compare.experiment.run import run_experiment
from compare.results.run_folder import RunFolder
from compare.results.trained_model import load_model
from compare.system.log import Reporter
from tests.conftest import TINY
from tests.kits.runs import ROWS, files


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("corpus", "{folder}/corpus"),
        (".", "{folder}"),
        ("..", "{parent}"),
        ("../a b/", "{parent}/a b"),
        ("", ""),
        ("~/corpus", "~/corpus"),
        ("/corpus/", "/corpus/"),
    ],
)
def test_a_root_in_a_file_is_relative_to_the_file(
    root: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    path = folder / "experiment.toml"
    path.write_text(TINY.format(root=root))
    expected = expected.format(folder=folder, parent=folder.parent)
    assert load_experiment(path).data.root == expected
    for working_directory in (folder, tmp_path):
        monkeypatch.chdir(working_directory)
        assert load_experiment(path.relative_to(working_directory)).data.root == expected


def test_a_root_on_the_command_line_is_relative_to_the_working_directory(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    experiment = load_experiment(tiny_toml, ["data.root=corpus"])
    assert experiment.data.root == "corpus"
    monkeypatch.chdir(tmp_path)
    assert {run.data.root for run in resolve_models(experiment)} == {str(tmp_path / "corpus")}


@pytest.mark.slow
@pytest.mark.usefixtures("without_plots")
def test_a_folder_with_its_experiment_is_moved_and_read_from_anywhere(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The run's config.toml has an absolute path: it is right for commands from any working directory."""
    corpus = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "here" / "mine"))
    (corpus / "experiment.toml").write_text(TINY.format(root="."))
    moved = Path(shutil.move(corpus, tmp_path / "there"))
    monkeypatch.chdir(tmp_path)
    quick = ["--set", "train.max_updates=2", "--set", "train.valid_every=2", "-q"]
    assert main(["run", "there/experiment.toml", "--out", "out", *quick]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ROWS:
        config = tmp_path / "out" / name / "config.toml"
        assert f'root = "{moved}"\n' in config.read_text()
        assert RunFolder.read(config.parent).run.data.root == str(moved)
    assert main(["check", "../out"]) == 0
    before = files(tmp_path / "out")
    overrides = ["--set", "data.root=../there"]
    assert main(["run", "../there/experiment.toml", "--out", "../out", *quick, *overrides]) == 0
    weights = [path for path in before if path.suffix == ".safetensors"]
    assert weights
    assert all(files(tmp_path / "out")[path] == before[path] for path in weights)  # nothing is run again


def test_a_run_of_an_earlier_version_has_a_root_relative_to_the_working_directory(
    finished: Path, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = Path(shutil.copytree(finished, tmp_path / "old"))
    corpus = tiny_toml.parent / "corpus"
    for name in ROWS:
        path = folder / name / "config.toml"
        text = path.read_text()
        assert f'root = "{corpus}"' in text
        assert f"schema = {SCHEMA}" in text
        path.write_text(text.replace(f'root = "{corpus}"', 'root = "corpus"'))
    monkeypatch.chdir(corpus.parent)
    assert RunFolder.read(folder / ROWS[0]).run == RunFolder.read(finished / ROWS[0]).run
    results = run_experiment(load_experiment(tiny_toml), folder, Reporter(quiet=True))
    assert [result.status for result in results] == ["done", "done"]
    assert load_model(folder / ROWS[0]).translate("") == ""
