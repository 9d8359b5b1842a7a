"""Columns of result tables: figures of ``Result``, settings, and scores of ``METRICS``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from compare.config.sections import SETTINGS, SHARED
from compare.results.formatting import Column, Row
from compare.results.store import Result, is_setting, of_test, setting_of
from compare.scoring import HEADLINE, METRICS, metric_of
from compare.system.messages import nearest

FURTHER = {
    "label": Column(
        "experiment",
        "experiment",
        "name of the folder, with its parent's where two are alike",
        shown="where rows differ",
        left=True,
    ),
    "seed": Column("seeds", "seeds", "number of runs behind a mean", shown="where known"),
}
FIGURES = {
    column.name: column
    for field in fields(Result)
    for column in (Column(field.name, **field.metadata), FURTHER.get(field.name))
    if column is not None
}
"""Every field of ``Result``, and the columns of joined and aggregated tables."""
COLUMNS = {name: figure for name, figure in FIGURES.items() if figure.title}
"""Every column except scores and settings, in the order of tables."""
SPREADS = tuple(name for name, column in COLUMNS.items() if column.spread)
SPREAD_ENDS = tuple(f"{name}_{end}" for name in SPREADS for end in ("low", "high"))
"""Fields with the lowest and the highest repeat of speeds."""


# Columns of settings.


def setting_column(name: str) -> Column:
    """Return the column of a setting, "section.key"."""
    about = SETTINGS[name].metadata["about"] if name in SETTINGS else "a dash: the model has no such setting"
    return Column(name, name, about, form=_setting, shown="where rows differ")


def _setting(value: Any) -> str:
    """Format a setting, which in a frame may be an integer stored as a float."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def varied_settings(rows: Sequence[Row], *, within_preset: bool = False) -> list[str]:
    """List the settings in which rows differ, or of those of models only where rows of one preset differ."""
    begun = [row for row in rows if row.get("train.precision") is not None]
    varied = []
    for name in dict.fromkeys(name for row in begun for name in row if is_setting(name)):
        values = {(row.get("preset") if name not in SHARED else "", setting_of(row, name)) for row in begun}
        several = not within_preset and len({value for _, value in values} - {None}) > 1
        if several or len(values) > len({preset for preset, _ in values}):
            varied.append(name)
    return varied


# Columns of scores in result tables, from the registry of metrics.


TEXT_FIGURES = (
    *("perplexity", "char_perplexity", "length_ratio", "brevity_penalty"),
    *("distinct_lines", "repeats", "at_limit"),
)
"""Figures of each test set that are no scores."""
PRIMARY = "bleu"
"""The metric with intervals over seeds and columns of further test sets."""
INTERVALS: Mapping[str, tuple[str, str]] = {
    "test_set": (
        "test set [95%]",
        "95% interval for other sentences, with the same trained models (bootstrap)",
    ),
    "seeds": ("seeds [95%]", "95% interval for other seeds, with the same sentences (Student's t)"),
    "combined": (
        "combined [95%]",
        "95% interval for other seeds and other sentences (Student's t on the variance of both; at least "
        "as wide as that over seeds)",
    ),
}


def score_column(metric: str, test: str = "") -> Column:
    """Return the column of a metric on the first test set, or on a further one."""
    definition = METRICS[metric]
    return Column(
        of_test(metric, test),
        f"{definition.heading} {test}".strip(),
        definition.help + ("" if definition.higher_is_better else "; lower is better"),
        group="quality",
        decimals=definition.decimals,
        shown="always" if metric in HEADLINE.metrics else "where known",
    )


def _ends(kinds: Sequence[str], test: str) -> list[tuple[str, str]]:
    return [
        (of_test(f"{PRIMARY}_{kind}_low", test), of_test(f"{PRIMARY}_{kind}_high", test)) for kind in kinds
    ]


def bleu_and_interval_column(test: str = "") -> Column:
    """Return the column of BLEU with its interval: "38.1 [36.6, 39.7]"."""
    score = score_column(PRIMARY, test)
    interval = replace(score, ends=_ends(["ci", "combined"], test))

    def text(row: Row) -> str:
        return score.text(row) if interval.order(row) is None else f"{score.text(row)} {interval.text(row)}"

    return replace(score, title=f"{score.title} [95%]", cell=text)


def text_columns(test: str = "") -> list[Column]:
    """Return the columns of ``TEXT_FIGURES`` on the first test set, or on a further one."""
    columns = [COLUMNS[name] for name in TEXT_FIGURES]
    return [
        replace(column, name=of_test(column.name, test), title=f"{column.title} {test}".strip())
        for column in columns
    ]


def bleu_interval_column(kind: str, test: str = "") -> Column:
    """Return the column of an interval of mean BLEU; "test_set" also shows that of a single run."""
    return Column(
        PRIMARY,
        f"{test} {INTERVALS[kind][0]}".strip(),
        f"BLEU {INTERVALS[kind][1]}",
        group="quality",
        decimals=METRICS[PRIMARY].decimals,
        shown="always",
        ends=_ends([kind, "ci"] if kind == "test_set" else [kind], test),
    )


def external_metrics(columns: Iterable[str], test: str = "") -> list[str]:
    """List the unregistered metrics of a row, of outside programs or missing plug-ins."""
    names, end = list(columns), of_test("_signature", test)
    external = [name.removesuffix(end) for name in names if name.endswith(end) and metric_of(name) is None]
    return [metric for metric in external if of_test(metric, test) in names]


def external_columns(columns: Iterable[str]) -> list[Column]:
    """Return the columns of ``external_metrics``, of all test sets."""
    names = list(dict.fromkeys(columns))
    return [
        Column(
            of_test(metric, test),
            f"{metric} {test}".strip(),
            "external metric (attnbench score FOLDER --external); check recomputes only the mean",
            group="quality",
            shown="where known",
        )
        for test in ("", *further_tests(names))
        for metric in external_metrics(names, test)
    ]


def further_tests(columns: Iterable[str]) -> list[str]:
    """List the test sets after the first, with columns such as ``perplexity_test_long``."""
    names = list(columns)
    deviations = {f"{name}_sd" for name in names}
    prefixes = "bleu_signature_", "perplexity_"  # language models lack the first, early versions the second
    tests = (
        name.removeprefix(prefix)
        for name in names
        for prefix in prefixes
        if name.startswith(prefix) and name not in deviations
    )
    return list(dict.fromkeys(tests))


def are_language_models(rows: Iterable[Row]) -> bool:
    """Return whether all finished rows, at least one, have perplexity and no BLEU."""
    done = [row for row in rows if row.get("status", "done") == "done"]
    return bool(done) and all(row.get("perplexity") is not None and row.get(PRIMARY) is None for row in done)


# Columns by their headings, with fields and explanations.


def with_scores(scores: Sequence[Column]) -> list[Column]:
    """List all columns in the order of tables, ``scores`` first in the group of quality."""
    names = {column.name for column in scores}
    others = [column for column in COLUMNS.values() if column.name not in names]
    position = next(index for index, column in enumerate(others) if column.group == "quality")
    return [*others[:position], *scores, *others[position:]]


def list_columns(tests: Iterable[str] = ()) -> list[Column]:
    """List every column in the order of tables, also of further ``tests``."""
    scores: list[Column] = []
    for test in ("", *tests):
        scores += [score_column(metric, test) for metric in METRICS]
        scores += [bleu_interval_column(kind, test) for kind in INTERVALS]
        scores += text_columns(test)
    return with_scores(scores)


def find_column(heading: str, tests: Iterable[str] = ()) -> Column:
    """Return the column with a heading, with or without unit or "[95%]"; ValueError for others."""
    if is_setting(heading):
        return setting_column(heading)
    intervals = map(bleu_and_interval_column, ("", *tests))
    by_title: dict[str, Column] = {column.title.casefold(): column for column in intervals}
    for spelling in ("{0.heading}", "{0.title}", "{0.title} [95%]"):  # exact headings come first
        for column in list_columns(tests):
            by_title.setdefault(spelling.format(column).casefold(), column)
    if heading.casefold() in by_title:
        return by_title[heading.casefold()]
    names = [text for column in list_columns(tests) for text in (column.name, column.title)]
    close = nearest(heading, [*names, *SHARED], 0.7)
    hint = f"; did you mean {close!r}?" if close else "; attnbench table --list explains all columns"
    raise ValueError(f"no column {heading!r}{hint}")


def stored_fields(name: str, fields: Sequence[str]) -> Sequence[str]:
    """Return the field called ``name``, or the fields behind that heading; ValueError without any."""
    if stored := [field for field in (name, f"model.{name}") if field in fields]:
        return stored[:1]
    column = find_column(name, further_tests(fields))
    for names in column.stored:
        if all(field in fields for field in names):
            return names
    raise ValueError(f"these rows have no value for the column {name!r}")


PATTERNS = {
    "SECTION.KEY": "a setting such as train.ema or, of a model, model.dropout; shown where rows differ",
    "METRIC_signature": "sacreBLEU's signature of a metric",
    "NAME, NAME_signature": "score and signature of an external metric, such as comet (score FOLDER "
    "--external); where known",
    "METRIC_ci_low, METRIC_ci_high": "95% bootstrap interval of one run, for other sentences",
    "FIELD_sd": "standard deviation of a field over seeds, in aggregated tables",
    "FIELD_TEST": "a score, interval, length or perplexity on a further test set, such as bleu_test_long",
}


def explain_columns() -> list[Row]:
    """Return heading, explanation, field and visibility of every column."""
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
        {"column": "", "explanation": text, "field": name, "shown": "if chosen"}
        for name, text in PATTERNS.items()
    ]
    return [*rows, *further]
