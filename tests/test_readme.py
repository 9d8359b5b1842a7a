"""README.md is correct: its tables, code, commands and files."""

import re
import runpy
import subprocess
import sys

import pytest

from compare import load_model, load_results
from compare.cli import app
from tests.kits.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_tables_are_those_of_the_result_files():
    """In README.md and in docs/."""
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    assert "<!-- table: " in README
    for page in made["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert made["regenerate"](text) == text, page.name


def test_the_model_trained_in_readme_learns():
    block = next(block for block in BLOCKS if "cross_entropy" in block)
    namespace = {}
    import torch

    torch.manual_seed(0)
    exec(block, namespace)  # README's own code
    assert namespace["loss"].item() < 0.5  # from log 20 = 3.0


def test_readme_imports_exist():
    block = next(block for block in BLOCKS if "load_model" in block)
    assert "from compare import load_model, load_results" in block
    assert callable(load_model)
    assert callable(load_results)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^    make (\w+)", README, re.MULTILINE))))
def test_make_targets_exist(target):
    run = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_commands_and_configs_exist():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    named = set(re.findall(r"(?:^    |`)(?:[^`\n]*\| )?attnbench ([a-z]+)", README, re.MULTILINE))
    assert named
    assert named <= known
    for config in re.findall(r"configs/[\w-]+\.toml", README):
        assert (ROOT / config).is_file()


def test_the_program_runs_as_a_module():
    command = [sys.executable, "-m", "compare", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "translate" in shown
