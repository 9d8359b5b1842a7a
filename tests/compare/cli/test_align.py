"""``attnbench align``: a run's attention against links that others made."""

import json
from pathlib import Path

import pytest

from compare.analysis.alignment import measure_alignment
from compare.analysis.word_links import read_gold
from compare.cli import main
from compare.results.run_folder import load_model
from tests.kits.common import ROWS, Refusal

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
    assert "1 of 7 links are outside their sentences (the first: sentence 2)" in captured.err
    rows = json.loads(captured.out)
    measured = measure_alignment(load_model(run), read_gold(*(Path(path) for path in files[1::2])))
    assert rows == [{"system": str(run), **row} for row in measured.rows("arg max")]
    assert len({row["attention"] for row in rows}) == len(rows) > 1
    assert main(["align", str(run), *files, "-q", "--method", "intersection"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "intersection" in captured.out


def test_written_links_score_as_the_attention_that_they_are_of(
    finished: Path, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
):
    run, folder = finished / ROWS[1], tmp_path / "links"
    options = [*files, "-q", "--json"]
    assert main(["align", str(run), *options, "--method", "0.2", "--out", str(folder)]) == 0
    attention = {row["attention"]: row for row in json.loads(capsys.readouterr().out)}
    written = [folder / run.name / f"{head.replace(',', '').replace(' ', '-')}.links" for head in attention]
    assert sorted((folder / run.name).iterdir()) == sorted(written)
    assert "two runs have the same name" in refusal("align", run, run, *files, "--out", folder)
    assert main(["align", *map(str, written), *options]) == 0
    links = json.loads(capsys.readouterr().out)
    scores = ["aer", "precision", "recall"]
    assert [[row[key] for key in scores] for row in links] == [
        [row[key] for key in scores] for row in attention.values()
    ]


def test_word_aligners_stand_beside_attention(
    finished: Path, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Gold has seven links, one outside; one file has the other six, the other one link per sentence."""
    one, other, run = tmp_path / "one", tmp_path / "other", finished / ROWS[1]
    one.write_text("0-1 1-0\n0-3 1-2 2-1 3-0\n")
    other.write_text("0-1\n0-0\n")
    assert main(["align", str(one), str(run), str(other), *files, "-q", "--json"]) == 0
    rows = {row["system"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [str(run), str(one), str(other)]
    assert rows[str(one)]["precision"] == 1
    assert rows[str(one)]["recall"] == pytest.approx(6 / 7)
    assert rows[str(one)]["aer"] == pytest.approx(1 - 12 / 13)
    assert rows[str(other)]["aer"] == pytest.approx(1 - 2 / 9)
    assert main(["align", str(one), *files, "-q"]) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_gold_may_be_of_the_other_direction_and_count_from_one(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    links, options = tmp_path / "links", [*files, "--json"]
    links.write_text("0-1 1-0\n0-3 1-2 2-1 3-0\n")
    (tmp_path / "gold").write_text("2-1 1-2\n4-1 3-2 2-3 1-4 1-10\n")
    assert main(["align", str(links), *options, "--first-word", "1", "--reversed"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["precision"] == 1
    assert main(["align", str(links), *options]) == 0
    assert "are outside their sentences" in capsys.readouterr().err
