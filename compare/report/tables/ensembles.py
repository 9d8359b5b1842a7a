"""Table of ensembles, which stands apart from that of single runs."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from compare.analysis.table import Row
from compare.report.conditions import distinct, metric_heading, signature_columns
from compare.results.columns import COLUMNS
from compare.results.ensemble_file import EnsembleResult, read_ensembles
from compare.results.markdown import markdown_table
from compare.results.numbers import UNKNOWN
from compare.results.score_columns import length_columns, likelihood_columns, score_column
from compare.results.store import experiment_names
from compare.scoring.metrics import METRICS

TITLE = "Ensembles: several models translate together; not to be ranked with single models"


def render_ensembles(results: Sequence[EnsembleResult], experiments: Sequence[str] = ()) -> str:
    """Format ensembles as a Markdown table, one row per ensemble and test set, and the metrics' signatures.

    Args:
        results: at least one ensemble.
        experiments: the name of the experiment of each, for a column of its own.
    """
    columns = [
        *(score_column(metric) for metric in METRICS),
        *likelihood_columns(),
        *length_columns(),
        COLUMNS["length_penalty"],
        COLUMNS["params"],
    ]
    rows, scored = [], []
    for number, result in enumerate(results):
        for test, scores in result.tests.items():
            values: Row = {**scores, "length_penalty": result.length_penalty, "params": result.params}
            rows.append(
                {"ensemble": result.label}
                | ({"experiment": experiments[number]} if experiments else {})
                | {"test set": test}
                | {column.heading: column.text(values) for column in columns}
                | {"members": ", ".join(result.members), "hash of members": result.members_hash[:12]}
            )
            scored.append(scores)
    known = [name for name in rows[0] if any(row[name] != UNKNOWN for row in rows)]
    rows = [{name: row[name] for name in known} for row in rows]
    text = {"ensemble", "experiment", "test set", "members", "hash of members"}
    signatures = [
        f"- {metric_heading(metric)}: {', '.join(distinct(scored, column))}"
        for metric, (column,) in signature_columns(dict.fromkeys(chain(*scored))).items()
        if distinct(scored, column)
    ]
    return "\n".join([TITLE, "", markdown_table(rows, left=text), "", *signatures])


def ensembles_below(folders: Sequence[Path]) -> str:
    """Return the table of all ensembles of experiments, to be printed below that of runs; "" without any."""
    names = experiment_names(folders)
    found = [(result, names[folder.resolve()]) for folder in folders for result in read_ensembles(folder)]
    if not found:
        return ""
    results, experiments = zip(*found, strict=True)
    return f"\n{render_ensembles(results, experiments if len(names) > 1 else ())}\n"
