"""README.md and docs/: tables made from results, links, navigation, commands; README's code."""

import re
import runpy
import subprocess
from pathlib import Path

import pytest
import torch
import typer

from compare.cli import app
from docs.generator.notebook import NOTEBOOK, notebook
from docs.generator.pages import MADE, Pages, navigation
from tests.kits.common import ROOT, SHARED

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:^    |`)(?:[^`\n]*\| )?attnbench ([^\n`|#&<>]+)", re.MULTILINE)


@pytest.mark.slow
def test_tables_are_those_of_the_result_files(tmp_path: Path):
    """In README.md and in docs/; where Multi30k is present, all of its test sets lie in one folder."""
    for path in [*SHARED.glob("multi30k/*.gz"), *SHARED.glob("multi30k-2017/*.gz")]:
        (tmp_path / "multi30k").mkdir(exist_ok=True)
        (tmp_path / "multi30k" / path.name).symlink_to(path)
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    assert "<!-- table: " in README
    for page in made["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert made["regenerate"](text, tmp_path) == text, page.name


def test_the_model_trained_in_readme_learns():
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "cross_entropy" in b)
    namespace = {}
    torch.manual_seed(0)
    exec(block, namespace)  # README's own code
    assert namespace["loss"].item() < 0.5  # from log 20 = 3.0


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^    make (\w+)", README, re.MULTILINE))))
def test_make_targets_exist(target):
    run = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_link_leads_to_a_file_and_every_page_is_in_the_navigation(tmp_path: Path):
    pages = Pages(tmp_path)
    pages.write()
    assert pages.mistakes == []
    missing = [page for page in navigation() if not (pages.folder / page).is_file()]
    assert missing == list(MADE)


def test_the_notebook_has_the_cells_of_the_tutorial():
    assert NOTEBOOK.read_text(encoding="utf-8") == notebook(), "run: python -m docs.generator.notebook"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_the_pages_exist(page: Path):
    """With all options that a page shows."""
    program = typer.main.get_command(app)
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        words, command = line.split(), program
        while words and hasattr(command, "commands") and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        accepted = {name for parameter in command.params for name in parameter.opts} | {"--help", "--version"}
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= accepted, line
        assert not hasattr(command, "commands") or options or not words, line
