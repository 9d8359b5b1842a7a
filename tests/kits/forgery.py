"""Edits of an experiment's files, after which hashes, figures and tables are made to agree again."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from compare.analysis.summary import summarise
from compare.report.table import render_views
from compare.results.run_folder import RunFolder
from compare.results.store import (
    SUMMARY,
    read_result,
    read_results,
    save_result,
    stored_summary,
    write_record,
)


def edit_text(path: Path, old: str, new: str) -> None:
    """Replace ``old``, which must be there, by ``new``."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the object in a JSON file in place."""
    content = json.loads(path.read_text(encoding="utf-8"))
    before = json.dumps(content)
    change(content)
    assert json.dumps(content) != before
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def renew_hashes(folder: Path) -> None:
    """Write the hashes of all files that are there, and of the config, into every result of an experiment."""
    for record in sorted(folder.glob("*/result.json")):
        result = read_result(record.parent)
        if result.files:
            run = RunFolder.read(record.parent)
            found = {name: digest for name, digest in run.hashes().items() if name in result.files}
            files = {**result.files, **found}
            save_result(run.folder, replace(result, files=files))


def renew_views(folder: Path) -> None:
    """Write summary, results.jsonl and tables again, if the results can be read."""
    with suppress(ValueError):
        results = read_results(folder)
        with suppress(OSError):
            write_record(folder / SUMMARY, summarise(folder))
        for name, text in render_views(results, stored_summary(folder, results)).items():
            (folder / name).write_text(text, encoding="utf-8")
