"""``data check``: planted faults are found on their lines, and sound text has no findings."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from compare.cli import main
from data.checks import CorpusCheck, Finding, SideCheck, check_corpus
from data.formats import Table, TwoFiles
from data.text import find_unusual
from tests.kits.texts import Pair, lines, made_up, two_files, write


def check(folder: Path, **splits: list[Pair]) -> CorpusCheck:
    """Write each split to files and check them."""
    sources = {}
    for name, pairs in splits.items():
        src, tgt = two_files(folder, pairs, name)
        sources[name] = [TwoFiles(src=src, tgt=tgt)]
    return check_corpus(sources)


def count_and_lines(finding: Finding) -> tuple[int, list[int]]:
    return finding.count, finding.lines


def test_a_sound_corpus_has_no_findings(tmp_path: Path):
    split = check(tmp_path, train=made_up(2_000)).splits["train"]
    report = split.to_json()
    assert report["pairs"] == 2_000
    for kind in ("ratio_outliers", "empty", "copies", "duplicates", "swapped"):
        assert report[kind] == {"count": 0, "lines": []}, kind
    for side in ("src", "tgt"):
        assert (report[side]["repeated"]["count"], report[side]["unusual"]) == (0, {})


def test_planted_faults_are_found_on_their_lines(tmp_path: Path):
    pairs = made_up(400)
    pairs[6] = ("  ", pairs[6][1])
    pairs[9] = (pairs[9][0], "")
    pairs[20] = ("The  same", "THE same")  # no copy: only other case
    pairs[21] = ("the same text", "the same text")
    pairs[30] = (pairs[29][0].upper(), pairs[29][1].replace(" ", "\u3000"))
    pairs[31] = (pairs[29][0], "etwas ganz anderes")
    pairs[50] = (pairs[50][0], pairs[50][1] * 8)
    pairs[51] = (pairs[51][0] * 8, pairs[51][1])
    split = check(tmp_path, train=pairs).splits["train"]
    assert count_and_lines(split.findings["empty"]) == (2, [7, 10])
    assert count_and_lines(split.findings["copies"]) == (1, [22])
    assert count_and_lines(split.findings["duplicates"]) == (1, [31])
    assert count_and_lines(split.sides["src"].repeated) == (2, [31, 32])
    assert count_and_lines(split.sides["tgt"].repeated) == (1, [31])
    assert count_and_lines(split.findings["ratio_outliers"]) == (2, [51, 52])


def test_overlap_is_counted_on_either_side(tmp_path: Path):
    train, test = made_up(300), [("quite new", "ganz neu"), ("as new", "wie neu"), ("", "")]
    test[1:1] = [(train[5][0], "neu hier"), ("new here", f" {train[7][1].upper()}  ")]
    train[100] = ("", "")
    report = check(tmp_path, train=train, test=test)
    assert {side: count_and_lines(f) for side, f in report.splits["test"].overlap.items()} == {
        "src": (1, [2]),
        "tgt": (1, [3]),
    }
    assert "overlap" not in report.to_json()["train"]
    assert report.num_unusable == 2


@pytest.mark.parametrize(
    ("kind", "text", "characters"),
    [
        ("control", "a\x00b\x7f\x80 \x00", {"U+0000": 2, "U+007F": 1, "U+0080": 1}),
        ("line break", "a\u2028b\u2029\x0b\x0c\x85c\r d", None),
        ("replacement", "caf\ufffd", {"U+FFFD": 1}),
        ("not text", "caf\udce9", {"U+DCE9": 1}),
        ("private use", "\ue000 \U0010fffd", {"U+E000": 1, "U+10FFFD": 1}),
        ("no character", "\ufdd0 \uffff", {"U+FDD0": 1, "U+FFFF": 1}),
        ("direction mark", "\u200fשלום\u202c", {"U+200F": 1, "U+202C": 1}),
        ("invisible", "zero\u200bwidth, joined \ufefffiles", {"U+200B": 1, "U+FEFF": 1}),
        ("space", "1\u00a0000\u202f€\t", {"U+00A0": 1, "U+202F": 1, "U+0009": 1}),
    ],
)
def test_unusual_characters(kind: str, text: str, characters: dict[str, int] | None):
    side = SideCheck()
    side.add(["usual, ... @@ a@@b AT&T", text, "Größe, naïve, ÂME, 5 €", text], np.array([11, 12, 13, 14]))
    assert list(side.unusual) == [kind]
    assert count_and_lines(side.unusual[kind]) == (2, [12, 14])
    if characters is not None:
        assert side.unusual[kind].characters == {code: 2 * count for code, count in characters.items()}


def test_languages_of_any_script_are_usual():
    lines = [
        "Ça va, Čeština, źródło",
        "Привет, мир!",
        "Γειά σου",
        "我喜欢猫。\u3000",
        "सर्दी",
        "שלום",
        "👩‍👩‍👧",
    ]
    assert find_unusual(lines) == {}


def test_forms_are_those_of_the_text_and_of_the_training_set(tmp_path: Path):
    test = [(f"{src} &amp;", tgt.upper()) for src, tgt in made_up(300, seed=2)]
    sides = check(tmp_path, train=made_up(1_000), test=test).splits["test"].sides
    assert str(sides["src"].forms[0]).startswith("HTML entities in 300 of 300 lines, but in 0 of 1,000 ")
    assert any(str(form).startswith("small letters in 0 of 300 lines") for form in sides["tgt"].forms)


def test_quantiles_are_those_of_the_sorted_lengths():
    side = SideCheck()
    for lengths in ([7, 1, 300, 4], [4, 9, 2]):
        side.add(["x" * length for length in lengths], np.arange(len(lengths)))
    expected = {"min": 1, "p5": 1, "median": 4, "p95": 300, "p99": 300, "max": 300}
    assert side.quantiles()["characters"] == expected


def test_swapped_pairs_are_suspected_and_others_are_not(tmp_path: Path):
    pairs = made_up(3_000)
    swapped = range(100, 3_000, 100)
    for row in swapped:
        pairs[row] = pairs[row][::-1]
    pairs[7] = ("Angela Merkel", "Angela Merkel")
    report = check(tmp_path, train=pairs, test=[pair[::-1] for pair in made_up(50, seed=2)])
    assert count_and_lines(report.splits["train"].findings["swapped"]) == (29, [101, 201, 301, 401, 501])
    assert report.splits["test"].findings["swapped"].count == 50  # the whole file is


def test_sides_of_one_language_are_never_suspected(tmp_path: Path):
    english = [src for src, _ in made_up(1_000)]
    report = check(tmp_path, train=list(zip(english, english[1:] + english[:1], strict=True)))
    assert report.splits["train"].findings["swapped"].count == 0


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each further pair takes 32 bytes, and some more during sorting; a set of its texts would take 180."""
    monkeypatch.setattr("data.formats.BLOCK_PAIRS", 500)
    pairs, peaks = made_up(1_000), []
    for times in (5, 15):
        src, tgt = two_files(tmp_path, pairs * times)
        tracemalloc.start()
        check_corpus({"": [TwoFiles(src=src, tgt=tgt)]})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 110 * 10 * len(pairs)


def test_the_command_prints_the_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pairs = made_up(50)
    src, tgt = two_files(tmp_path, pairs)
    assert main(["data", "check", str(src), str(tgt), "-q"]) == 0
    text = capsys.readouterr().out
    assert "corpus: 50 pairs" in text
    assert "swapped" not in text
    write(tgt, lines([*(pair[1] for pair in pairs[:-1]), "gr\u00fcn"]).replace("ü".encode(), b"\xfc"))
    assert main(["data", "check", str(src), str(tgt), "-q", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)[""]
    umlauts = [number for number, pair in enumerate(pairs[:-1], start=1) if "ü" in pair[1]]
    assert report["tgt"]["unusual"]["not text"]["lines"] == [*umlauts, 50][:5]
    assert report["files"] == [{"paths": [str(src), str(tgt)], "pairs": 50}]


def test_line_numbers_of_tables_with_a_header_are_those_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "t.tsv"
    path.write_text("de\ten\neins\tone\n\ttwo\neins\tone\n")
    source = Table(path=path, columns=("de", "en"))
    split = check_corpus({"": [source]}).splits[""]
    assert count_and_lines(split.findings["empty"]) == (1, [3])
    assert count_and_lines(split.findings["duplicates"]) == (1, [4])
    twice = check_corpus({"": [source, source]}).splits[""]  # numbering continues: 4 lines, then a header
    assert count_and_lines(twice.findings["empty"]) == (2, [3, 7])
    assert count_and_lines(twice.findings["duplicates"]) == (3, [4, 6, 8])
    assert main(["data", "check", str(path), "--columns", "de,en", "-q"]) == 1
    assert "a blank side                     1  line 3\n" in capsys.readouterr().out
    path.write_text("de\ten\n")
    with pytest.raises(ValueError, match=r"t\.tsv: it has only a header line, no pairs"):
        check_corpus({"": [source]})
