"""Readers of published formats, compared with sacreBLEU's reader, and with damaged files."""

import gzip
from pathlib import Path

import pytest

from data.named_corpora import column, segments, tagged_lines, whole_lines
from tests.kits.named_corpora import sgm, tags


def test_lines_of_tags_are_dropped(tmp_path: Path):
    path = tmp_path / "train.tags.de-en.de"
    path.write_bytes(tags("Grüße &amp; mehr", "", "a < b", "zwei\u2028Zeilen"))
    assert list(tagged_lines(path)) == ["Grüße &amp; mehr", "", "a < b", "zwei\u2028Zeilen"]


def test_columns_of_lines_with_tabs(tmp_path: Path):
    path = tmp_path / "deu.txt"
    path.write_bytes("\ufeffGo.\tGeh.\tCC-BY\r\nHi.\n\tHallo.\n".encode())
    assert list(whole_lines(path)) == ["Go.\tGeh.\tCC-BY", "Hi.", "\tHallo."]
    assert list(column(0)(path)) == ["Go.", "Hi.", ""]
    assert list(column(1)(path)) == ["Geh.", "", "Hallo."]


def test_official_test_sets_read_as_sacrebleu_reads_them(tmp_path: Path):
    """Entities, spaces and lines around segments are treated as in sacreBLEU's own reader."""
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    path = tmp_path / "set.sgm"
    path.write_bytes(sgm("Grüße &amp; mehr", "a  b\tc", "1 < 2 > 0", "", "a <b>c</b>"))
    twin = FakeSGMLDataset("twin", data=[], langpairs={})
    twin._convert_format(str(path), str(tmp_path / "twin.txt"))
    assert list(segments(path)) == (tmp_path / "twin.txt").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize(
    ("form", "content", "words"),
    [
        (segments, b'<seg id="1">no end\n', "line 1: <seg> without </seg>"),
        (whole_lines, b"a\n\xff\n", "line 2: not UTF-8"),
    ],
)
def test_a_fault_in_a_published_text_names_its_line(tmp_path: Path, form, content: bytes, words: str):
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        list(form(path))


def test_a_truncated_gz_is_an_error(tmp_path: Path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-9])
    with pytest.raises(ValueError, match=r"not a whole \.gz file"):
        list(whole_lines(path))
