"""The list of published results: every folder stands in it, its commands exist, and every run can be read."""

import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import typer

from compare.cli import app
from compare.results.store import SUMMARY, of_budget, read_registry, read_result, read_results, stored_summary
from tests.kits.common import ROOT

SCRIPT = ROOT / "benchmarks" / "results.py"
MODULE = runpy.run_path(str(SCRIPT))
LIST: dict[str, dict[str, Any]] = MODULE["read_list"]()
COMMANDS = [(name, command) for name, entry in LIST.items() for command in entry["commands"]]
FOLDERS = [path for path in sorted((ROOT / "results").iterdir()) if path.is_dir()]
EXPERIMENTS = [path for path in FOLDERS if (path / "experiment.json").is_file()]


def test_the_list_names_every_folder_and_no_other():
    assert sorted(LIST) == [path.name for path in FOLDERS]
    for entry in LIST.values():
        assert entry.keys() == {"about", "minutes", "commands"}
        assert entry["minutes"] > 0


def test_the_page_is_that_of_the_list():
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert page == MODULE["render_list"](), "run: python benchmarks/results.py --write"


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_command_can_be_given(name: str, command: str):
    """Its files exist and its options are known; nothing is run."""
    _, program, arguments = MODULE["split"](command)
    assert program in ("attnbench", "python", "sh", "eflomal-align")
    for before, argument in zip((program, *arguments), arguments, strict=False):
        if argument.startswith(("configs/", "benchmarks/")):
            assert (ROOT / argument).is_file()
        if argument.startswith("results/"):
            entry = argument.split("/")[1]
            assert entry == name or (before == "--tuning" and entry in LIST)  # --tuning only reads it
    if program == "python" and arguments[0] == "-m":
        importlib.import_module(arguments[1])
    if program == "attnbench":
        group: Any = typer.main.get_command(app)
        subcommand, *options = arguments
        group.commands[subcommand].make_context(subcommand, options)


@pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda path: path.name)
def test_published_results_can_be_read(folder: Path):
    assert all(result.status != "unfinished" for result in read_results(folder))
    if read_registry(folder).published is not None:
        for result in read_results(folder):
            outputs = "*.hyp.gz" if result.bleu else "perplexity.json"  # a language model does not search
            assert list((folder / result.run).glob(outputs)) or result.status == "failed"
            assert read_result(folder / result.run).files
            assert not re.search(r'^root = "[^"]*/', (folder / result.run / "config.toml").read_text(), re.M)


@pytest.mark.parametrize(
    "folder", [path for path in EXPERIMENTS if (path / SUMMARY).is_file()], ids=lambda path: path.name
)
def test_a_published_outcome_is_that_of_the_results_beside_it(folder: Path):
    assert stored_summary(folder, of_budget(read_results(folder))), "the results have changed: make it again"
