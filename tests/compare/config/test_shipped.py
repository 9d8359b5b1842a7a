"""Experiments that ship with the package: found by name from anywhere; an existing file wins."""

import tomllib
from pathlib import Path

import pytest

from compare.cli import main
from compare.config import toml as shipped
from compare.config.parse import load_experiment
from tests.kits.cli import Refusal
from tests.kits.paths import ROOT


def test_a_name_stands_for_the_shipped_file_unless_there_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert load_experiment("demo") == load_experiment(ROOT / "configs" / "demo.toml")
    (tmp_path / "runs").mkdir()
    (tmp_path / "demo").mkdir()  # a folder is no experiment
    assert load_experiment("demo").name == "demo"
    (tmp_path / "demo").rmdir()
    (tmp_path / "demo").write_text('[[models]]\npreset = "gnmt"\n')
    assert [model.preset for model in load_experiment("demo").models] == ["gnmt"]


def test_an_unknown_name_suggests_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
):
    monkeypatch.chdir(tmp_path)
    for command in ("run", "bench"):
        message = refusal(command, "demmo")
        assert message.startswith("demmo: no such file, and no experiment of that name ships with attnbench")
        assert "did you mean 'demo'?" in message
    assert refusal("run", "demo.toml") == "demo.toml: No such file or directory"


def test_the_list_names_all_and_says_what_they_are(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.stem for path in ROOT.glob("configs/*.toml"))
    assert all(len(line.split()) > 4 for line in lines)
    assert not [line for line in lines if line.endswith("et al")]  # a sentence does not end there


def test_the_wheel_has_them_where_they_are_looked_for():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    packaged = ROOT / settings["force-include"]["configs"]
    assert packaged == shipped.FOLDERS[0]
    assert packaged.parent.name in settings["packages"]
