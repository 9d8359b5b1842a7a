"""docs/settings.md lists every setting with the default that a file without it gets."""

import runpy
import tomllib
from dataclasses import fields
from pathlib import Path

from compare.config.parse import OPTIMIZER, describe_settings, load_experiment
from compare.config.sections import SECTIONS, Experiment
from compare.optim import OptimConfig
from tests.kits.paths import ROOT


def test_the_page_is_that_of_the_code():
    regenerate = runpy.run_path(str(ROOT / "benchmarks" / "reference.py"))["regenerate"]
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert "| `log_every` " in page
    assert regenerate(page) == page, "run: python benchmarks/reference.py"
    assert regenerate(page.replace("| `log_every` ", "| `log` ")) == page


def test_the_defaults_are_those_of_a_file_without_settings(tmp_path: Path):
    (tmp_path / "bare.toml").write_text('[[models]]\npreset = "lstm"\n')
    experiment = load_experiment(tmp_path / "bare.toml")
    described = describe_settings()
    assert set(SECTIONS) == {each.name for each in fields(Experiment)} - {"name", "models", "plugins"}
    for section in SECTIONS:
        for row in described[section]:
            value = getattr(getattr(experiment, section), row["setting"])
            written = tomllib.loads(f"x = {row['default']}")["x"] if row["default"] else None
            assert written == (list(value) if isinstance(value, tuple) else value)
            assert row["meaning"].endswith(".")
    assert {row["setting"] for row in described[OPTIMIZER]} == {each.name for each in fields(OptimConfig)}
