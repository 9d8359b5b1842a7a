"""Results with one row per model instead of one row per run: means, standard deviations, intervals."""

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
    """Aggregate the runs of each label over their seeds.

    - A number becomes its mean, with the standard deviation over seeds beside it as ``<name>_sd`` (NaN for
      one seed). If one seed lacks the figure, there is no mean: over the remaining seeds it would be biased.
    - The gain of longer training is that of the seed on which it was measured.
    - Any other value is kept if all seeds agree on it. ``seeds`` is the number of seeds.
    - The interval of each run is replaced by the intervals of the mean BLEU: ``bleu_test_set_low``,
      ``bleu_seeds_low``, ``bleu_combined_low`` and the same with ``_high``. Columns of further test sets end
      in their name, as in ``bleu_seeds_low_test_long``.

    Args:
        finished: the experiment.
        scored: its test sets by name, as returned by ``score_tests``.

    Returns:
        One row per label, in the order of the experiment's table, with the column names of its runs.
    """
    import pandas as pd

    headline, *further = finished.corpus.tests
    test_by_suffix = {"": headline, **{f"_{test}": test for test in further}}
    rows = []
    for label, runs in finished.labels.items():
        intervals = {
            suffix: model_intervals(list(scored[test].models[label].values()))
            for suffix, test in test_by_suffix.items()
        }
        rows.append(_aggregate_row([run.result.flat() for run in runs], intervals))
    return pd.DataFrame(rows)


def _aggregate_row(seed_rows: Sequence[Row], intervals: Mapping[str, Intervals]) -> Row:
    """Aggregate the rows of one label.

    Args:
        seed_rows: one row per seed.
        intervals: by suffix of their columns.

    Returns:
        One row; an interval that needs several seeds is NaN, so that pandas gives its column a numeric type.
    """
    aggregate: Row = {}
    for name in seed_rows[0]:
        stem, _, suffix = name.partition("bleu_ci_low")
        if name == "seed":
            aggregate["seeds"] = len(seed_rows)
        elif not stem:
            columns = intervals[suffix].columns("bleu", suffix)
            aggregate |= {key: math.nan if value is None else value for key, value in columns.items()}
        elif name in ("longer_gain", "longer_factor"):  # measured on one seed only
            aggregate[name] = next((row[name] for row in seed_rows if row[name] is not None), None)
        elif not name.startswith("bleu_ci_high"):
            aggregate |= _over_seeds(name, [row.get(name) for row in seed_rows])
    return aggregate


def _over_seeds(name: str, values: Sequence[Any]) -> Row:
    """Aggregate the values of column ``name``, one value per seed."""
    all_equal = all(value == values[0] for value in values)
    if not all(isinstance(value, int | float) for value in values):
        return {name: values[0] if all_equal else None}
    # Equal values stay as they are, so that a count remains an integer.
    mean = values[0] if all_equal else fmean(values)
    return {name: mean, f"{name}_sd": stdev(values) if len(values) > 1 else math.nan}
