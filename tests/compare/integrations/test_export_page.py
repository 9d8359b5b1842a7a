"""docs/export.md: its recipes work, without the libraries of others where they can do without."""

import re
from pathlib import Path

import pytest

from compare import export_model
from compare.cli import main
from compare.integrations.hub import FILES
from tests.kits.paths import ROOT
from tests.kits.raw_data import made_up

PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run_block(part: str, **names: object) -> None:
    (block,) = (block for block in BLOCKS if part in block)
    exec(compile(block, "docs/export.md", "exec"), names)


def test_a_hugging_face_dataset_becomes_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A column of translations, as a list of dicts; one text has a line feed."""
    monkeypatch.chdir(tmp_path)
    pairs = [(src, f"{tgt}\n.") for src, tgt in made_up(40)]
    dataset = {"translation": [{"en": src, "de": tgt} for src, tgt in pairs]}
    run_block("dataset", dataset=dataset, Path=Path)
    assert (tmp_path / "corpus.en").read_text().splitlines() == [src for src, _ in pairs]
    assert (tmp_path / "corpus.de").read_text().splitlines() == [tgt.replace("\n", " ") for _, tgt in pairs]
    assert main(["data", "prepare", "corpus.de", "corpus.en", "--out", "mine", "-q"]) == 0
    assert (tmp_path / "mine" / "experiment.toml").is_file()


def test_the_search_of_ctranslate2(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    monkeypatch.chdir(tmp_path)
    export_model(finished / "transformer-seed1", "converted", lines=1)
    run_block("translate_batch")
    assert capsys.readouterr().out.endswith("\n")


def test_the_table_lists_the_files_of_a_saved_model():

    table = PAGE.split("| file | content |\n")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([\w.]+)` ", table, re.MULTILINE)) == set(FILES)
