"""What the runs of an experiment say together: means over seeds and the outcome, kept in summary.json.

They need all translations and a bootstrap of their scores, too long for a command that only shows them:
``compare.analysis.comparison.summarise`` computes them when the runs have ended.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare.results.store import Result, read_record, to_json_lines

SUMMARY = "summary.json"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Means over seeds and the outcome of an experiment."""

    results: str
    """``results_hash`` of the runs that it is of."""
    means: list[dict[str, Any]]
    """One row per model with a finished run, as ``aggregate_seeds`` makes it, None for what is not known."""
    outcome: list[str]
    """``headlines``; none without translations."""


def stored_summary(folder: Path, results: Sequence[Result]) -> Summary | None:
    """Read the summary of these results from an experiment's folder; None if it is missing or of others."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    summary = read_record(path, Summary, "delete it: the next command computes it again")
    return summary if summary.results == results_hash(results) else None


def renew(summary: Summary, results: Sequence[Result]) -> Summary:
    """Return the summary of a copy of the runs, which differs in its results' hashes of settings alone."""
    means = []
    for row in summary.means:
        runs = [result for result in results if result.label == row["label"] and result.status == "done"]
        hashes = {name: {getattr(run, name) for run in runs} for name in ("settings_hash", "config_hash")}
        means.append(row | {name: found.pop() if len(found) == 1 else None for name, found in hashes.items()})
    return Summary(results=results_hash(results), means=means, outcome=summary.outcome)


def results_hash(results: Sequence[Result]) -> str:
    """Compute the sha256 of results as JSON lines."""
    return hashlib.sha256(to_json_lines(results).encode()).hexdigest()


def has_means(results: Sequence[Result]) -> bool:
    """Return whether a table for people has means: of models with several seeds, if all runs are done.

    Rows that have not ended, or failed, have no place in means and must be seen.
    """
    labels = [result.label for result in results]
    return len(set(labels)) < len(labels) and all(result.status == "done" for result in results)
