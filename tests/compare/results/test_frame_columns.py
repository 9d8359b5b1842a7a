"""docs/data-frame.md lists the columns that load_results gives, with their types."""

import re
import runpy
import shutil
from pathlib import Path

import pytest

from compare.results.frame_columns import describe_columns
from compare.results.store import load_results, save_result
from tests.kits.paths import ROOT
from tests.kits.results import result


def test_the_page_is_that_of_the_code():
    regenerate = runpy.run_path(str(ROOT / "benchmarks" / "columns.py"))["regenerate"]
    page = (ROOT / "docs" / "data-frame.md").read_text(encoding="utf-8")
    assert "| `bleu` " in page
    assert regenerate(page) == page
