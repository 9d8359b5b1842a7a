"""Columns of result tables: one list for Markdown, LaTeX, CSV and JSON tables and the HTML report.

Figures are declared in columns.toml; the columns of scores come from ``METRICS``.
"""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from compare.config.sections import EXTERNAL
from compare.results.text import UNKNOWN, describe_share, format_number
from compare.scoring import HEADLINE, METRICS, metric_of
from compare.system.messages import nearest

Row = Mapping[str, Any]
"""Values of one run or model by column name, with the standard deviation over seeds in ``<name>_sd``."""


FACTORS = {"M": 1e-6, "GB": 1e-9, "%": 100, "min": 1 / 60}
"""Factors from stored values to printed ones, by the unit of the latter; others are printed as stored."""


Group = Literal["identity", "size", "quality", "speed", "training", "conditions"]
"""Subjects of columns."""
GROUPS: tuple[Group, ...] = get_args(Group)
Shown = Literal["always", "where known", "where rows differ", "in the report", "if chosen"]
"""Default visibility of a column, where any row has a value; every column can be chosen by name."""


@dataclass(frozen=True)
class Column:
    """A column of result tables."""

    name: str
    """Field of ``Result``, or a column of joined or aggregated tables."""
    title: str = ""
    """Heading; a figure without one is no column of its own."""
    group: Group = "identity"
    _: KW_ONLY
    unit: str = ""
    """Unit of the printed value, where the title does not name it."""
    help: str = ""
    decimals: int | None = None
    """Decimal places of the printed value; None: as ``format_number``."""
    shown: Shown = "if chosen"
    left: bool = False
    """Whether tables align it left."""
    spread: bool = False
    """Whether the fields ``<name>_low`` and ``<name>_high`` have the lowest and the highest repeat."""
    setting: str = ""
    """The setting that the figure repeats, a key of ``Run.conditions``."""
    off: Any = None
    """Value of the setting with which a run does without, which results leave out."""
    added: bool = False
    """Whether results of before it was declared lack it, which ``check`` then says and does not count."""
    ends: Sequence[tuple[str, str]] = ()
    """Fields of both ends of an interval, "[36.6, 39.7]"; of several pairs, the first that a row has."""
    render: Callable[[Row], str] | None = None
    """Function that makes the text of a cell; by default the formatted value."""

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def stored(self) -> Sequence[Sequence[str]]:
        """The stored fields that the cell is made of; of several lists, the first that a row has."""
        return self.ends or [[self.name]]

    def text(self, row: Row) -> str:
        """Return the cell of ``row``, with deviation over seeds and spread if known: "81 ± 3 (78–84)".

        Seeds in two groups stand in place of their deviation: "72 (28 / 93, 94)".
        """
        if self.render is not None:
            return self.render(row)
        if self.ends:
            known = self._interval(row)
            return f"[{', '.join(map(self._format, known))}]" if known else UNKNOWN
        value, deviation, groups = (row.get(f"{self.name}{end}") for end in ("", "_sd", "_groups"))
        text = self._format(value)
        if isinstance(groups, str):
            text += f" ({groups})"
        elif deviation and value is not None:
            text += f" ± {self._format(deviation)}"
        low, high = (row.get(f"{self.name}_{end}") if self.spread else None for end in ("low", "high"))
        return text if low is None or high is None else f"{text} ({self._format(low)}–{self._format(high)})"

    def order(self, row: Row) -> float | None:
        """Return the number to sort by, of an interval the lower end; None where it is text or unknown."""
        value = next(iter(self._interval(row)), None) if self.ends else row.get(self.name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return value * FACTORS.get(self.unit, 1)

    def _interval(self, row: Row) -> Sequence[float]:
        for low, high in self.ends:
            if row.get(low) is not None and row.get(high) is not None:
                return row[low], row[high]
        return ()

    def _format(self, value: Any) -> str:
        if not isinstance(value, int | float):
            return format_number(value)
        value *= FACTORS.get(self.unit, 1)
        return format_number(value) if self.decimals is None else f"{value:,.{self.decimals}f}"


# Text of the cells that are made of several fields.


def label_text(row: Row) -> str:
    """Format the label, and mark that of an external system."""
    return f"{row.get('label', UNKNOWN)}{' (external)' if row.get('preset') == EXTERNAL else ''}"


def seed_text(row: Row) -> str:
    """Format the seed without thousands separators."""
    return str(row.get("seed", UNKNOWN))


def matched_text(row: Row) -> str:
    """Format the matched budget and the deviation from it: "params +0.4%"."""
    budget, deviation = row.get("budget"), row.get("budget_off")
    return UNKNOWN if budget is None or deviation is None else f"{budget} {deviation:+.1%}"


def start_text(row: Row) -> str:
    """Format the hash of the weights that training started from: "weights 0123456789ab"."""
    found = row.get("init_hash")
    return UNKNOWN if found is None else f"weights {found[:12]}"


def status_text(row: Row) -> str:
    """Format the status with its reason: "failed: loss became NaN at update 37"."""
    return f"{row['status']}: {row['reason']}" if row.get("reason") else str(row.get("status"))


def share_text(name: str, row: Row) -> str:
    """Format a share of the processor or of the machine's speed: "97%", or "62%, disturbed"."""
    share = row.get(name)
    return UNKNOWN if share is None else describe_share(share)


TEXTS: Mapping[str, Callable[[Row], str]] = {
    "label": label_text,
    "seed": seed_text,
    "budget_off": matched_text,
    "init_hash": start_text,
    "status": status_text,
    "cpu_share": partial(share_text, "cpu_share"),
    "reference_share": partial(share_text, "reference_share"),
}


# The figures of results, and their columns.


_DECLARED = tomllib.loads(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))


def _figures(group: Group) -> dict[str, Column]:
    """Make the declared figures of a group."""
    columns = {}
    for name, figure in _DECLARED[group].items():
        columns[name] = Column(name, group=group, render=TEXTS.get(name), **figure)
    return columns


FIGURES: Mapping[str, Column] = {name: figure for group in GROUPS for name, figure in _figures(group).items()}
"""Every field of ``Result``, and the columns of joined and aggregated tables, by name."""
COLUMNS: Mapping[str, Column] = {name: figure for name, figure in FIGURES.items() if figure.title}
"""Every column except scores, by name, in the order of tables."""
SPREADS = tuple(name for name, column in COLUMNS.items() if column.spread)
"""Speeds that have a spread."""
SPREAD_ENDS = tuple(f"{name}_{end}" for name in SPREADS for end in ("low", "high"))
"""Fields with the lowest and the highest repeat of these speeds."""


# Columns of scores in result tables, from the registry of metrics.


TEXT_FIGURES = ("perplexity", "char_perplexity", "length_ratio", "brevity_penalty")
"""Figures of each test set that are no scores."""
PRIMARY = "bleu"
"""The metric with confidence intervals over seeds and columns of further test sets."""
INTERVALS: Mapping[str, Mapping[str, str]] = _DECLARED["intervals"]
"""Headings and explanations of the confidence intervals of BLEU over seeds."""


def of_test(field: str, test: str) -> str:
    """Return the name of a field on a further test set; on the first (empty) it is the field itself."""
    return f"{field}_{test}" if test else field


def score_column(metric: str, test: str = "") -> Column:
    """Return the column of a metric.

    Args:
        metric: name in ``METRICS``.
        test: a further test set; empty: the first.
    """
    definition = METRICS[metric]
    return Column(
        of_test(metric, test),
        f"{definition.heading} {test}".strip(),
        "quality",
        help=definition.help + ("" if definition.higher_is_better else "; lower is better"),
        decimals=definition.decimals,
        shown="always" if metric in HEADLINE.metrics else "where known",
    )


def _ends(kinds: Sequence[str], test: str) -> list[tuple[str, str]]:
    """Return the fields of the ends of kinds of intervals of BLEU."""
    return [
        (of_test(f"{PRIMARY}_{kind}_low", test), of_test(f"{PRIMARY}_{kind}_high", test)) for kind in kinds
    ]


def bleu_and_interval_column(test: str = "") -> Column:
    """Return the column of BLEU with the interval of a single run: "38.1 [36.6, 39.7]"."""
    score = score_column(PRIMARY, test)
    interval = replace(score, ends=_ends(["ci", "combined"], test))

    def text(row: Row) -> str:
        return score.text(row) if interval.order(row) is None else f"{score.text(row)} {interval.text(row)}"

    return replace(score, title=f"{score.title} [95%]", render=text)


def text_columns(test: str = "") -> list[Column]:
    """Return the columns of the figures in ``TEXT_FIGURES``.

    Args:
        test: a further test set; empty: the first.
    """
    columns = [COLUMNS[name] for name in TEXT_FIGURES]
    return [
        replace(each, name=of_test(each.name, test), title=f"{each.title} {test}".strip()) for each in columns
    ]


def bleu_interval_column(kind: str, test: str = "") -> Column:
    """Return the column of an interval of mean BLEU.

    Args:
        kind: name in ``INTERVALS``; "test_set" also shows the bootstrap interval of a single run.
        test: a further test set; empty: the first.
    """
    return Column(
        PRIMARY,
        f"{test} {INTERVALS[kind]['title']}".strip(),
        "quality",
        help=f"BLEU {INTERVALS[kind]['help']}",
        decimals=METRICS[PRIMARY].decimals,
        shown="always",
        ends=_ends([kind, "ci"] if kind == "test_set" else [kind], test),
    )


def external_metrics(columns: Iterable[str], test: str = "") -> list[str]:
    """List the metrics of a row that are not registered: those of programs outside, or of missing plug-ins.

    Args:
        columns: columns of the row.
        test: a further test set; empty: the first.
    """
    names, end = list(columns), of_test("_signature", test)
    found = [name.removesuffix(end) for name in names if name.endswith(end) and metric_of(name) is None]
    return [metric for metric in found if of_test(metric, test) in names]


def external_columns(columns: Iterable[str]) -> list[Column]:
    """Return the columns of ``external_metrics``, of all test sets.

    Args:
        columns: columns of one row, or of all.
    """
    names = list(dict.fromkeys(columns))
    return [
        Column(
            of_test(metric, test),
            f"{metric} {test}".strip(),
            "quality",
            help="of an external metric (attnbench score FOLDER --external); check recomputes only the mean",
            shown="where known",
        )
        for test in ("", *further_tests(names))
        for metric in external_metrics(names, test)
    ]


def further_tests(columns: Iterable[str]) -> list[str]:
    """List the test sets after the first, which have columns such as ``perplexity_test_long``."""
    names = list(columns)
    deviations = {f"{name}_sd" for name in names}
    prefixes = "bleu_signature_", "perplexity_"  # language models lack the first, earlier versions the second
    found = (
        name.removeprefix(prefix)
        for name in names
        for prefix in prefixes
        if name.startswith(prefix) and name not in deviations
    )
    return list(dict.fromkeys(found))


def are_language_models(rows: Iterable[Row]) -> bool:
    """Return whether all finished rows, at least one, are of language models: perplexity, no search."""
    done = [row for row in rows if row.get("status", "done") == "done"]
    return bool(done) and all(row.get("perplexity") is not None and row.get("beam") is None for row in done)


# Columns by the name that people see: headings, fields, and an explanation of each.


def with_scores(scores: Sequence[Column]) -> list[Column]:
    """List all columns in the order of tables, with ``scores`` at the beginning of the group of quality."""
    names = {column.name for column in scores}
    others = [column for column in COLUMNS.values() if column.name not in names]
    place = next(index for index, column in enumerate(others) if column.group == "quality")
    return [*others[:place], *scores, *others[place:]]


def list_columns(tests: Iterable[str] = ()) -> list[Column]:
    """List every column in the order of tables.

    Args:
        tests: further test sets.
    """
    scores: list[Column] = []
    for test in ("", *tests):
        scores += [score_column(metric, test) for metric in METRICS]
        scores += [bleu_interval_column(kind, test) for kind in INTERVALS]
        scores += text_columns(test)
    return with_scores(scores)


def find_column(heading: str, tests: Iterable[str] = ()) -> Column:
    """Return the column with a heading, with or without its unit or "[95%]"; case does not matter.

    Args:
        heading: such as "model", "params (M)" or "BLEU".
        tests: further test sets of the rows.

    Raises:
        ValueError: no such column; the message suggests the nearest.
    """
    intervals = map(bleu_and_interval_column, ("", *tests))
    by_title: dict[str, Column] = {column.title.casefold(): column for column in intervals}
    for spelling in ("{0.heading}", "{0.title}", "{0.title} [95%]"):  # a heading before what resembles it
        for column in list_columns(tests):
            by_title.setdefault(spelling.format(column).casefold(), column)
    if heading.casefold() in by_title:
        return by_title[heading.casefold()]
    known = [text for column in list_columns(tests) for text in (column.name, column.title)]
    close = nearest(heading, known, 0.6)
    hint = f"; did you mean {close!r}?" if close else ": attnbench table --list explains all"
    raise ValueError(f"no column {heading!r}{hint}")


def stored_fields(name: str, fields: Sequence[str]) -> Sequence[str]:
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
    for names in column.stored:
        if all(each in fields for each in names):
            return names
    raise ValueError(f"no column {name!r} in these rows, which have no value for it")


def explain_columns() -> list[Row]:
    """Return heading, explanation, field and default visibility of every column, one row each."""
    rows = [
        {
            "column": column.heading,
            "explanation": column.help,
            "field": ", ".join(column.stored[0]),
            "shown": column.shown,
        }
        for column in list_columns()
    ]
    further = [
        {"column": "", "explanation": text, "field": field, "shown": "if chosen"}
        for field, text in _DECLARED["further"].items()
    ]
    return [*rows, *further]
