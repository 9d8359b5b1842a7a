"""``attnbench align``: a run's attention against links that others made."""

import json
from pathlib import Path

import pytest

from compare.analysis.alignment.gold import read_gold
from compare.analysis.alignment.measurement import measure_alignment
from compare.cli import main
from compare.results.trained_model import load_model
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS

SRC, TGT = "small cat\nred dog sees tree\n", "Katze klein\nBaum sieht Hund rot\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Links of two sentences, the second with one past its end, as options of the command."""
    texts = {"gold": "0-1 1-0\n0-3 1-2 2-1 3-0 9-0\n", "src": SRC, "tgt": TGT}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return [part for name in texts for part in (f"--{name}", str(tmp_path / name))]


def test_every_head_is_set_against_the_links(
    finished: Path, files: list[str], capsys: pytest.CaptureFixture[str]
):
    run = finished / ROWS[1]
    assert main(["align", str(run), *files, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "sentence 2: skipped link 9-0" in captured.err
    rows = json.loads(captured.out)
    found = measure_alignment(load_model(run), read_gold(*(Path(path) for path in files[1::2])))
    assert rows == found.rows("arg max")
    assert len({row["attention"] for row in rows}) == len(rows) > 1
    assert main(["align", str(run), *files, "-q", "--method", "intersection"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "intersection" in captured.out


def test_links_of_the_other_direction_are_turned(
    finished: Path, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["align", str(finished / ROWS[0]), *files, "--json", "-q"]) == 0
    straight = capsys.readouterr().out
    (tmp_path / "gold").write_text("1-0 0-1\n3-0 2-1 1-2 0-3\n", encoding="utf-8")
    assert main(["align", str(finished / ROWS[0]), *files, "--json", "-q", "--turned"]) == 0
    assert capsys.readouterr().out == straight


def test_what_cannot_be_aligned(finished: Path, files: list[str], refusal: Refusal):
    said = refusal("align", finished / ROWS[0], *files, "-q", "--method", "best")
    assert said.startswith("unknown method 'best': choose from arg max, intersection, 0.05")
