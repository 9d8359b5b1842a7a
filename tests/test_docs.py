"""docs/api.md names everything public, CONTRIBUTING.md files that exist; the examples of all pages run."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import compare
import data
from compare.models.presets import PRESETS
from compare.models.registry import FAMILIES
from compare.scoring import METRICS
from seq2seq.scores import SCORES
from tests.kits.common import ROOT
from tests.test_imports import CONTRIBUTING

API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", API, re.DOTALL)
PROSE = re.sub(r"```.*?```", "", API, flags=re.DOTALL)
EXAMPLES = {
    page.stem: blocks
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page.stem not in ("api", "export")
    and (blocks := re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
}
"""Blocks of the other pages, each page in a namespace of its own; those of export: test_export.py."""
PUBLIC = {name: package for package in (compare, data) for name in package.__all__}


@pytest.fixture
def registries() -> Iterator[None]:
    """Removes at the end what a test has registered."""
    saved = [(registry, dict(registry)) for registry in (PRESETS, FAMILIES, METRICS, SCORES)]
    yield
    for registry, entries in saved:
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_page_names_everything_public(name: str):
    assert re.search(rf"`{name}\b", PROSE)


def test_contributing_names_files_that_exist():
    paths = re.findall(r"`([a-z_]+/[\w/]+\.py)`", CONTRIBUTING)
    assert [path for path in paths if not any((ROOT / at / path).is_file() for at in ("", "compare"))] == []
    assert len(paths) >= 5


@pytest.mark.slow
def test_the_examples_run(
    copy: Path, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registries: None
):
    """In one namespace, in order, on the tiny experiment in place of the demo."""
    corpus = tiny_toml.parent / "corpus"
    for language in ("en", "de"):
        shutil.copy(corpus / f"train.{language}", tmp_path / f"corpus.{language}")
        shutil.copy(corpus / f"test.{language}", tmp_path / f"gold.{language}")
    replacements = {
        "configs/demo.toml": tiny_toml.as_posix(),
        "runs/demo": copy.as_posix(),
        "bahdanau-seed1": "luong-seed1",
        'baseline="bahdanau"': 'baseline="luong"',
    }
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in BLOCKS:
        for demo, tiny in replacements.items():
            block = block.replace(demo, tiny)
        exec(compile(block, "docs/api.md", "exec"), namespace)
    assert (copy / "report.html").is_file()
    assert (tmp_path / "mine" / "train.de").is_file()
    assert namespace["attended"].tgt[-1] == "<eos>"


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_of_other_pages_run(
    page: str, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registries: None
):
    """On the published results, and on the tiny corpus in place of the reader's."""
    for language in ("en", "de"):
        shutil.copy(tiny_toml.parent / "corpus" / f"train.{language}", tmp_path / f"corpus.{language}")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in EXAMPLES[page]:
        for folder in ("results/", "configs/"):
            block = block.replace(f'"{folder}', f'"{(ROOT / folder).as_posix()}/')
        exec(compile(block, f"docs/{page}.md", "exec"), namespace)
