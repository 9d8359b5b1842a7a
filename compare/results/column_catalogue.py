"""Columns by the name that people see: headings, fields, and an explanation of each."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from compare.results.column import Column, Group, Row, Shown
from compare.results.columns import COLUMNS
from compare.results.score_columns import (
    INTERVALS,
    bleu_interval_column,
    further_tests,
    length_columns,
    likelihood_columns,
    score_column,
)
from compare.scoring.metrics import METRICS

FURTHER_FIELDS = (
    ("METRIC_signature", "sacreBLEU's signature of a metric"),
    (
        "NAME, NAME_signature",
        "score and signature of a metric from outside, such as comet (attnbench add-scores); where known",
    ),
    ("METRIC_ci_low, METRIC_ci_high", "95% bootstrap interval of one run, for other sentences"),
    ("FIELD_sd", "standard deviation of a field over seeds, in aggregated tables"),
    ("FIELD_TEST", "a score, interval, length or perplexity on a further test set, such as bleu_test_long"),
)
"""Patterns of the fields that are no columns of their own, with explanations."""
SHOWN = {
    Shown.ALWAYS: "always",
    Shown.IF_KNOWN: "where known",
    Shown.IF_DIFFERENT: "where rows differ",
    Shown.IN_REPORT: "in the report",
    Shown.NEVER: "if chosen",
}


def list_columns(tests: Iterable[str] = ()) -> list[Column]:
    """List every column in the order of tables: identity, size, scores, speed, training, conditions.

    Args:
        tests: further test sets.
    """
    before = [column for column in COLUMNS.values() if column.group.value < Group.QUALITY.value]
    scores = []
    for test in ("", *tests):
        scores += [score_column(metric, test) for metric in METRICS]
        scores += [bleu_interval_column(kind, test) for kind in INTERVALS]
        scores += [*likelihood_columns(test), *length_columns(test)]
    names = {column.name for column in scores}
    after = [
        column
        for column in COLUMNS.values()
        if column.group.value >= Group.QUALITY.value and column.name not in names
    ]
    return [*before, *scores, *after]


def find_column(heading: str, tests: Iterable[str] = ()) -> Column:
    """Return the column with a heading, with or without its unit or "[95%]"; case does not matter.

    Args:
        heading: such as "model", "params (M)" or "BLEU".
        tests: further test sets of the rows.

    Raises:
        ValueError: no such column; the message suggests the nearest.
    """
    by_title: dict[str, Column] = {}
    for column in list_columns(tests):
        for text in (column.heading, column.title, f"{column.title} [95%]"):
            by_title.setdefault(text.casefold(), column)
    if heading.casefold() in by_title:
        return by_title[heading.casefold()]
    known = [text for column in list_columns(tests) for text in (column.name, column.title)]
    close = get_close_matches(heading, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ": attnbench table --list-columns explains all"
    raise ValueError(f"no column {heading!r}{hint}")


def stored_fields(name: str, fields: Sequence[str]) -> list[str]:
    """Return the fields of a chosen column: ``name`` itself, or those behind the heading ``name``.

    Args:
        name: a field or a heading.
        fields: fields of the rows.

    Raises:
        ValueError: the rows have no such column.
    """
    if name in fields:
        return [name]
    column = find_column(name, further_tests(fields))
    for names in column.stored():
        if all(each in fields for each in names):
            return names
    raise ValueError(f"no column {name!r} in these rows, which have no value for it")


def explain_columns() -> list[Row]:
    """Return heading, field, default visibility and explanation of every column, one row each."""
    rows = [
        {
            "column": column.heading,
            "field": ", ".join(column.stored()[0]),
            "shown": SHOWN[column.shown],
            "explanation": column.help,
        }
        for column in list_columns()
    ]
    further = [
        {"column": "", "field": field, "shown": SHOWN[Shown.NEVER], "explanation": text}
        for field, text in FURTHER_FIELDS
    ]
    return [*rows, *further]
