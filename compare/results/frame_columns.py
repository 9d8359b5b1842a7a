"""Documentation of the columns of the data frame of results."""

from dataclasses import fields

from compare.config.field_docstrings import field_docstrings
from compare.results.columns import COLUMNS
from compare.results.result import Result
from compare.results.score_columns import score_column
from compare.results.store import DTYPES
from compare.scoring.metrics import METRICS

FURTHER = ("tests", "scores", "files")
"""Fields that are several columns of the frame, or none."""


def describe_columns() -> list[dict[str, str]]:
    """Describe each column of ``load_results``, in its order.

    Returns:
        Per column its name, its type in the frame, its heading in tables (empty: tables do not have it) and
        a description.
    """
    rows = [
        {
            "column": "experiment",
            "type": "object",
            "heading": COLUMNS["experiment"].heading,
            "description": "Name of the experiment's folder, with its parent's where two are alike.",
        }
    ]
    described = field_docstrings(Result)
    for field in fields(Result):
        if field.name not in FURTHER:
            rows.append(
                {
                    "column": field.name,
                    "type": DTYPES.get(field.type, "object"),
                    "heading": _heading(field.name),
                    "description": described[field.name],
                }
            )
    return rows


def _heading(name: str) -> str:
    """Return the heading of a column in tables; empty where they do not have it."""
    if name in METRICS:
        return score_column(name).heading
    return COLUMNS[name].heading if name in COLUMNS else ""
