"""Table of ensembles, which stands apart from that of single runs."""

from collections.abc import Sequence
from pathlib import Path

from compare.analysis.table import Row
from compare.results.columns import COLUMNS
from compare.results.ensemble_file import EnsembleResult, read_ensembles
from compare.results.markdown import markdown_table
from compare.results.score_columns import length_columns, likelihood_columns, score_column
from compare.scoring.metrics import METRICS

TITLE = "Ensembles: several models translate together; not to be ranked with single models"


def render_ensembles(results: Sequence[EnsembleResult]) -> str:
    """Format ensembles as a Markdown table, one row per ensemble and test set.

    Args:
        results: at least one ensemble.
    """
    columns = [
        *(score_column(metric) for metric in METRICS),
        *likelihood_columns(),
        *length_columns(),
        COLUMNS["length_penalty"],
        COLUMNS["params"],
    ]
    rows = []
    for result in results:
        for test, scores in result.tests.items():
            values: Row = {**scores, "length_penalty": result.length_penalty, "params": result.params}
            rows.append(
                {"ensemble": result.label, "test set": test}
                | {column.heading: column.text(values) for column in columns}
                | {"members": ", ".join(result.members), "hash of members": result.members_hash[:12]}
            )
    text = {"ensemble", "test set", "members", "hash of members"}
    return f"{TITLE}\n\n{markdown_table(rows, left=text)}"


def ensembles_below(folders: Sequence[Path]) -> str:
    """Return the table of all ensembles of experiments, to be printed below that of runs; "" without any."""
    found = [result for folder in folders for result in read_ensembles(folder)]
    return f"\n{render_ensembles(found)}\n" if found else ""
