"""A model that writes line breaks: every source line still has exactly one line of translation."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from compare.cli import main
from compare.decoding import translator
from compare.decoding.search import Hypothesis, search_all
from compare.results.run_folder import load_model
from data.symbols import SPECIALS
from data.vocabulary import load_pair
from tests.kits.cli import ROWS

BYTES = "\nA\u2028\r\x85\x0c\x00B\n".encode()
"""Output of the model. Some of these line breaks are two or three bytes in UTF-8, one piece per byte."""
IDS = [len(SPECIALS) + byte for byte in BYTES]
LINE = " A     B "
QUICK = {
    "vocabulary.kind": "unigram",
    "vocabulary.size": 290,
    "train.max_updates": 2,
    "train.valid_every": 1,
    "train.batch_tokens": 256,
}


@pytest.fixture
def line_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every search find ``IDS``, whatever the model has learnt."""

    def found(*arguments: Any, **options: Any) -> list[list[list[Hypothesis]]]:
        rows = search_all(*arguments, **options)
        return [[[Hypothesis(IDS, best.score)] for (best,) in row] for row in rows]

    monkeypatch.setattr(translator, "search_all", found)


@pytest.mark.usefixtures("line_breaks")
def test_an_experiment_whose_models_write_line_breaks_ends_in_a_table(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    settings = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    command = ["run", str(tiny_toml), "--out", str(out), "-q", "--json", *settings]
    assert main(command) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["status"] for result in results] == ["done", "done"]
    pieces = load_pair(out / ROWS[0]).tgt.pieces(IDS)
    assert pieces == [f"<0x{byte:02X}>" for byte in BYTES]
    for name in ROWS:
        assert (out / name / "test.hyp").read_bytes().decode() == f"{LINE}\n" * 8

    model = load_model(out / ROWS[0])
    assert model.translate(["dog", "", "cat"]) == [LINE, "", LINE]
    assert model.translate("dog") == LINE
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"dog\n\ncat\n")))
    assert main(["translate", str(out / ROWS[0])]) == 0
    assert capsys.readouterr().out == f"{LINE}\n\n{LINE}\n"
