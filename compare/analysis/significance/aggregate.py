"""A row a model instead of a row a run: means and standard deviations over seeds, and the three intervals."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.significance.intervals import Intervals, model_intervals
from compare.analysis.significance.scored_tests import ScoredTestSet
from compare.analysis.table import Row

if TYPE_CHECKING:
    import pandas as pd


def aggregate_seeds(finished: FinishedExperiment, scored: Mapping[str, ScoredTestSet]) -> "pd.DataFrame":
    """One row a label, in the order of the table, under the names that the columns of its runs have.

    - A number becomes its mean, and ``<name>_sd`` beside it is the standard deviation over seeds (unknown for
      one seed). What one of the seeds does not know is unknown: the mean of the others would flatter.
    - Anything else is kept where the seeds agree on it. ``seeds`` is how many there are.
    - Each run's own interval makes way for those of the mean BLEU: ``bleu_test_set_low``, ``bleu_seeds_low``,
      ``bleu_combined_low`` and their ``_high``; for a further test set ``bleu_seeds_low_test_long``.

    Args:
        finished: the experiment.
        scored: its test sets by name, as ``score_tests`` gives them.
    """
    import pandas as pd

    headline, *further = finished.corpus.tests
    ends = {"": headline, **{f"_{test}": test for test in further}}
    rows = []
    for label, runs in finished.labels.items():
        intervals = {
            end: model_intervals(list(scored[test].models[label].values())) for end, test in ends.items()
        }
        rows.append(_row([run.result.flat() for run in runs], intervals))
    return pd.DataFrame(rows)


def _row(rows: Sequence[Row], intervals: Mapping[str, Intervals]) -> Row:
    """One row for the rows of a label; ``intervals`` by what their columns end in.

    What one seed cannot give is NaN, or pandas would not see a column of it as numbers.
    """
    found: Row = {}
    for name in rows[0]:
        stem, _, end = name.partition("bleu_ci_low")
        if name == "seed":
            found["seeds"] = len(rows)
        elif not stem:
            ends = intervals[end].columns("bleu", end)
            found |= {key: math.nan if value is None else value for key, value in ends.items()}
        elif not name.startswith("bleu_ci_high"):
            found |= _over_seeds(name, [row.get(name) for row in rows])
    return found


def _over_seeds(name: str, values: Sequence[Any]) -> Row:
    """What the seeds say together in column ``name``."""
    alike = all(value == values[0] for value in values)
    if not all(isinstance(value, int | float) for value in values):
        return {name: values[0] if alike else None}
    # What is the same for all stays as it is, so that a count remains whole.
    mean = values[0] if alike else fmean(values)
    return {name: mean, f"{name}_sd": stdev(values) if len(values) > 1 else math.nan}
