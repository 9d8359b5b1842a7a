"""The columns of the page's result table, and how each shows its figures."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from compare.analysis.significance.comparison import Comparison
from compare.analysis.table import Row
from compare.report.html.load import LoadedExperiment
from compare.report.html.parts import Cell, ColumnHeading
from compare.report.html.significance import verdict

UNKNOWN = Cell(text="–")
KINDS = {
    "test_set": ("test set 95%", "for other sentences, these very models (bootstrap)"),
    "seeds": ("seeds 95%", "for other seeds, these very sentences (Student's t)"),
    "combined": (
        "combined 95%",
        "for other seeds and other sentences (variances added, Satterthwaite: with more degrees of freedom "
        "than the seeds alone have, so it may be the narrower of the two)",
    ),
}
"""Heading and hint of each interval."""
COSTS = (
    ("params", "params (M)", "millions of trained weights", "{:.2f}", 1e-6),
    ("budget_off", "budget (%)", "by which the matched budget is missed", "{:+.1f}", 100),
    ("train_tokens_per_s", "train tokens/s", "source and target, padding not counted", "{:,.0f}", 1),
    ("train_s", "train (min)", "validation and checkpoints left out", "{:,.1f}", 1 / 60),
    ("greedy_sentences_per_s", "greedy sent/s", "", "{:,.1f}", 1),
    ("beam_sentences_per_s", "beam sent/s", "", "{:,.1f}", 1),
    ("latency_ms_p50", "latency (ms)", "median, one sentence at a time", "{:,.1f}", 1),
    ("energy_j_per_1k_tokens", "J/1k tokens", "", "{:,.1f}", 1),
)
"""Fields of a row that are shown where known: heading, hint, form, and what the field is multiplied by."""


class Column(NamedTuple):
    """A column of the result table."""

    head: ColumnHeading
    cell: Callable[[Row], Cell]


def columns_of(
    loaded: LoadedExperiment, texts: bool, against: Mapping[str, Comparison], reference: str
) -> list[Column]:
    """The columns that an experiment has anything to say in.

    Args:
        loaded: the experiment.
        texts: whether there are intervals over seeds.
        against: comparisons of the reference with the other models, by label; may be empty.
        reference: the label of the model that the others are set against.
    """
    several = any(len(runs) > 1 for runs in loaded.finished.labels.values())
    kinds = list(KINDS) if several and texts else ["test_set"]
    first, *further = loaded.finished.corpus.tests
    columns = [_column("BLEU", f"on {first}, mean ± standard deviation", _figure("bleu"))]
    columns += [_interval(kind) for kind in kinds]
    if against:
        columns.append(_column(f"against {reference}", "", _verdict(against, reference)))
    results = [run.result for run in loaded.finished.runs]
    columns.append(_column("chrF", f"on {first}", _figure("chrf")))
    if any(row.ter is not None for row in results):
        columns.append(_column("TER", f"on {first}, lower is better", _figure("ter")))
    for test in further:
        columns += [_column(f"BLEU {test}", "", _figure(f"bleu_{test}")), _interval(kinds[-1], test)]
    for name, text, hint, form, factor in COSTS:
        if any(getattr(row, name) is not None for row in results):
            columns.append(_column(text, hint, _figure(name, form, factor)))
    if any(row.status != "done" for row in loaded.rows):
        columns.append(Column(ColumnHeading(text="status"), lambda row: Cell(text=row["status"])))
    return columns


def _column(text: str, hint: str, show: Callable[[Row], Cell]) -> Column:
    return Column(ColumnHeading(text=text, hint=hint, numeric=True), show)


def _figure(name: str, form: str = "{:.1f}", factor: float = 1) -> Callable[[Row], Cell]:
    """Cells that show a figure, and its standard deviation where there is one."""

    def show(row: Row) -> Cell:
        value = row.get(name)
        if value is None:
            return UNKNOWN
        text, spread = form.format(value * factor), row.get(f"{name}_sd")
        if spread:
            text += f" ± {form.replace('+', '').format(spread * factor)}"
        return Cell(text=text, order=value * factor)

    return show


def _interval(kind: str, test: str = "") -> Column:
    """One of the three intervals; that of a single run is of the test set.

    ``test`` is a further test set; empty: the first.
    """
    name, hint = KINDS[kind]
    end = f"_{test}" if test else ""

    def show(row: Row) -> Cell:
        low, high = (row.get(f"bleu_{kind}_{side}{end}") for side in ("low", "high"))
        if kind == "test_set" and low is None:
            low, high = (row.get(f"bleu_ci_{side}{end}") for side in ("low", "high"))
        if low is None or high is None:
            return UNKNOWN
        return Cell(text=f"{low:.1f} to {high:.1f}", order=low)

    return _column(f"{test} {name}".strip(), "" if test else f"BLEU {hint}", show)


def _verdict(against: Mapping[str, Comparison], reference: str) -> Callable[[Row], Cell]:
    """Cells that say how a model did against the reference."""

    def show(row: Row) -> Cell:
        if row["label"] == reference:
            return Cell(text="itself", order=0.0)
        found = against.get(row["label"])
        return verdict(found.swapped()) if found else UNKNOWN

    return show
