"""Columns of result tables: one list for Markdown, LaTeX, CSV and JSON tables and the HTML report.

The column of a figure is declared with its field of ``Result``; the columns of scores come from ``METRICS``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches

from compare.results.column import Column, Group, IntervalColumn, Row, Shown
from compare.results.result import Result
from compare.scoring.metrics import METRICS, metric_of
from compare.scoring.score import HEADLINE

FOLLOWING = {
    "label": Column(
        "experiment",
        "experiment",
        Group.IDENTITY,
        help="name of the folder, with its parent's where two are alike",
        shown=Shown.IF_DIFFERENT,
        left=True,
    ),
    "seed": Column(
        "seeds", "seeds", Group.IDENTITY, help="number of runs behind a mean", shown=Shown.IF_KNOWN
    ),
}
"""Columns of joined and of aggregated tables, by the figure that they follow."""


def _declared_columns() -> dict[str, Column]:
    """Make the columns that are declared with the fields of ``Result``, in their order, by name."""
    columns: dict[str, Column] = {}
    group = Group.IDENTITY
    for each in fields(Result):
        group = each.metadata["group"] or group
        if each.metadata["title"]:
            columns[each.name] = each.metadata["column"](each.name, group)
        if each.name in FOLLOWING:
            columns[FOLLOWING[each.name].name] = FOLLOWING[each.name]
    return columns


COLUMNS: Mapping[str, Column] = _declared_columns()
"""Every column except scores, by name, in the order of tables."""
SPREADS = {column.name: column.title for column in COLUMNS.values() if column.spread}
"""Titles of the speeds that have a spread, by field."""
SPREAD_ENDS = tuple(f"{name}_{end}" for name in SPREADS for end in ("low", "high"))
"""Fields with the lowest and the highest repeat of these speeds."""

# Columns of scores in result tables, from the registry of metrics.


TEXT_FIGURES = ("perplexity", "char_perplexity", "length_ratio", "brevity_penalty")
"""Figures of each test set that are no scores."""
PRIMARY = "bleu"
"""The metric with confidence intervals over seeds and columns of further test sets."""
INTERVALS = {
    "test_set": ("test set [95%]", "for other sentences and these very models (bootstrap)"),
    "seeds": ("seeds [95%]", "for other seeds and these very sentences (Student's t)"),
    "combined": (
        "combined [95%]",
        "for other seeds and other sentences (Student's t on the variance of both; never narrower than that "
        "over seeds)",
    ),
}
"""Headings and explanations of the confidence intervals of BLEU over seeds."""


def score_column(metric: str, test: str = "") -> Column:
    """Return the column of a metric.

    Args:
        metric: name in ``METRICS``.
        test: a further test set; empty: the first.
    """
    definition = METRICS[metric]
    return Column(
        f"{metric}_{test}" if test else metric,
        f"{definition.heading} {test}".strip(),
        Group.QUALITY,
        help=definition.help + ("" if definition.higher_is_better else "; lower is better"),
        decimals=definition.decimals,
        shown=Shown.ALWAYS if metric in HEADLINE.metrics else Shown.IF_KNOWN,
    )


def score_and_interval_column(metric: str, test: str = "") -> Column:
    """Return the column of a metric with the interval of a single run: "38.1 [36.6, 39.7]"."""
    score = score_column(metric, test)
    interval = IntervalColumn(
        metric, "", Group.QUALITY, intervals=("ci",), test=test, decimals=score.decimals
    )

    def text(row: Row) -> str:
        return score.text(row) if interval.order(row) is None else f"{score.text(row)} {interval.text(row)}"

    return replace(score, title=f"{score.title} [95%]", render=text)


def text_columns(test: str = "") -> list[Column]:
    """Return the columns of the figures in ``TEXT_FIGURES``.

    Args:
        test: a further test set; empty: the first.
    """
    columns = [COLUMNS[name] for name in TEXT_FIGURES]
    if not test:
        return columns
    return [replace(each, name=f"{each.name}_{test}", title=f"{each.title} {test}") for each in columns]


def bleu_interval_column(kind: str, test: str = "") -> Column:
    """Return the column of an interval of mean BLEU.

    Args:
        kind: name in ``INTERVALS``; "test_set" also shows the bootstrap interval of a single run.
        test: a further test set; empty: the first.
    """
    title, explanation = INTERVALS[kind]
    return IntervalColumn(
        "bleu",
        f"{test} {title}".strip(),
        Group.QUALITY,
        help=f"BLEU {explanation}",
        shown=Shown.ALWAYS,
        decimals=METRICS["bleu"].decimals,
        intervals=(kind, "ci") if kind == "test_set" else (kind,),
        test=test,
    )


def external_metrics(columns: Iterable[str], test: str = "") -> list[str]:
    """List the metrics of a row that are not registered: those of programs outside, or of missing plug-ins.

    Args:
        columns: columns of the row.
        test: a further test set; empty: the first.
    """
    names, suffix = list(columns), f"_{test}" if test else ""
    end = f"_signature{suffix}"
    found = [name.removesuffix(end) for name in names if name.endswith(end) and metric_of(name) is None]
    return [metric for metric in found if f"{metric}{suffix}" in names]


def external_columns(columns: Iterable[str]) -> list[Column]:
    """Return the columns of ``external_metrics``, of all test sets.

    Args:
        columns: columns of one row, or of all.
    """
    names = list(dict.fromkeys(columns))
    return [
        Column(
            f"{metric}_{test}" if test else metric,
            f"{metric} {test}".strip(),
            Group.QUALITY,
            help="from outside (attnbench score FOLDER --external); check recomputes only the mean",
            shown=Shown.IF_KNOWN,
        )
        for test in ("", *further_tests(names))
        for metric in external_metrics(names, test)
    ]


def further_tests(columns: Iterable[str]) -> list[str]:
    """List the test sets after the first, which have columns such as ``perplexity_test_long``."""
    prefixes = "bleu_signature_", "perplexity_"  # language models lack the first, earlier versions the second
    known = dict.fromkeys(columns)
    deviations = {name for name in known if name.endswith("_sd") and name.removesuffix("_sd") in known}
    names = [name for name in known if name not in deviations]
    found = (name.removeprefix(prefix) for name in names for prefix in prefixes if name.startswith(prefix))
    return list(dict.fromkeys(found))


def are_language_models(rows: Iterable[Row]) -> bool:
    """Return whether all finished rows, at least one, are of language models: perplexity, no search."""
    done = [row for row in rows if row.get("status", "done") == "done"]
    return bool(done) and all(row.get("perplexity") is not None and row.get("beam") is None for row in done)


# Columns by the name that people see: headings, fields, and an explanation of each.


FURTHER_FIELDS = (
    ("METRIC_signature", "sacreBLEU's signature of a metric"),
    (
        "NAME, NAME_signature",
        "score and signature of a metric from outside, such as comet (score FOLDER --external); where known",
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
        scores += text_columns(test)
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
