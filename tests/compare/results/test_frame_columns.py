"""docs/data-frame.md lists the columns that load_results gives, with their types."""

import runpy
from pathlib import Path

from compare.results.store import Result, load_results, save_result
from tests.kits.paths import ROOT

REFERENCE = runpy.run_path(str(ROOT / "benchmarks" / "reference.py"))


def test_the_page_is_that_of_the_code():
    regenerate = REFERENCE["regenerate"]
    page = (ROOT / "docs" / "data-frame.md").read_text(encoding="utf-8")
    assert "| `bleu` " in page
    assert regenerate(page) == page
    assert regenerate(page.replace("| `bleu` ", "| `blue` ")) == page


def test_the_list_has_the_columns_of_the_frame_with_their_types(tmp_path: Path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        result = Result(label="lstm", preset="lstm", seed=1, status="done", bleu=38.1)
        save_result(folder / "lstm-seed1", result)
    frame = load_results(folders)  # as a list, as one by one
    assert frame.equals(load_results(*map(str, folders)))
    assert frame["experiment"].tolist() == ["one", "two"]
    described = REFERENCE["describe_columns"]()
    assert {row["column"]: row["type"] for row in described} == dict(frame.dtypes.astype(str))
    assert all(row["description"] for row in described)
