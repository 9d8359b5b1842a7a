"""Check of selection.json: the length penalty that was chosen on validation."""

from collections.abc import Iterator

from compare.check.findings import ComparedValue
from compare.check.run_data import CheckedRun
from compare.decoding.length_penalty import length_penalties
from compare.results.selection import read_selection
from data.text.files import hash_file


def check_selection(run: CheckedRun) -> Iterator[ComparedValue]:
    """Compare grid, choice and weights of selection.json with config, rule and result."""
    penalties = length_penalties(run.folder.run.decode)
    if len(penalties) == 1:
        return
    try:
        selection = read_selection(run.folder.selection, penalties)  # checks the grid and the rule
    except (ValueError, OSError) as error:
        reason = str(error).removeprefix(f"{run.folder.selection}: ")
        yield ComparedValue(run.name, run.folder.selection.name, "a choice by the rule", reason)
        return
    weights = run.folder.weights
    name = weights.relative_to(run.folder.folder).as_posix()
    found = hash_file(weights) if weights.is_file() else run.result.files.get(name, "no hash")
    yield ComparedValue(run.name, f"{run.folder.selection.name}: weights", selection.weights, found)
