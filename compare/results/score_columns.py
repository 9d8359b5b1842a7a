"""Columns of scores in result tables, from the registry of metrics."""

from collections.abc import Iterable
from dataclasses import replace

from compare.results.column import Column, Group, IntervalColumn, Row, Shown
from compare.scoring.metrics import METRICS, metric_of
from compare.scoring.score import HEADLINE

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


def length_columns(test: str = "") -> list[Column]:
    """Return the columns that tell whether BLEU suffers from the length of the translations.

    Args:
        test: a further test set; empty: the first.
    """
    titles = {
        "length_ratio": ("length ratio", "tokens of the translations over tokens of the references"),
        "brevity_penalty": ("brevity penalty", "factor of BLEU for translations that are too short"),
    }
    return [
        Column(
            f"{name}_{test}" if test else name,
            f"{title} {test}".strip(),
            Group.QUALITY,
            help=explanation,
            decimals=3,
            shown=Shown.ALWAYS,
        )
        for name, (title, explanation) in titles.items()
    ]


def likelihood_columns(test: str = "") -> list[Column]:
    """Return the columns of the perplexity of the references.

    Args:
        test: a further test set; empty: the first.
    """
    return [
        Column(
            f"perplexity_{test}" if test else "perplexity",
            f"perplexity {test}".strip(),
            Group.QUALITY,
            help="of the references per target token, end of sentence included, without label smoothing; "
            "compares models of one vocabulary; lower is better",
            decimals=2,
            shown=Shown.IF_KNOWN,
        ),
        Column(
            f"char_perplexity_{test}" if test else "char_perplexity",
            f"perplexity per character {test}".strip(),
            Group.QUALITY,
            help="of the references, line ends included; compares different vocabularies, but unknown words "
            "(<unk>) make it too low; lower is better",
            decimals=3,
            shown=Shown.IF_KNOWN,
        ),
    ]


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
            help="by a program or file from outside (attnbench add-scores); check recomputes only the mean",
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
