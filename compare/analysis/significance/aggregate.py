"""Results with one row per model instead of one row per run: means, standard deviations, intervals."""

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.significance.intervals import (
    Interval,
    Intervals,
    clip_intervals,
    model_intervals,
    seed_interval,
)
from compare.analysis.significance.matched_runs import match_runs
from compare.analysis.significance.power import smallest_differences
from compare.analysis.significance.scored_tests import COMPARED_METRICS, ScoredRun, ScoredTestSet
from compare.analysis.table import Row

if TYPE_CHECKING:
    import pandas as pd

_LIMIT = re.compile(r"(?P<metric>.+)_ci_(?P<end>low|high)(?P<suffix>(_.+)?)")
"""Column of a limit of the interval of one run; the suffix names a further test set."""


def aggregate_seeds(finished: FinishedExperiment, scored: Mapping[str, ScoredTestSet]) -> "pd.DataFrame":
    """Aggregate the runs of each label over their seeds.

    - A number becomes its mean, with the standard deviation over seeds beside it as ``<name>_sd`` (NaN for
      one seed). If one seed lacks the figure, there is no mean: over the remaining seeds it would be biased.
    - The gain of longer training is that of the seed on which it was measured.
    - Any other value is kept if all seeds agree on it. ``seeds`` is the number of seeds.
    - The interval of each run is replaced by the intervals of the mean score: ``bleu_test_set_low``,
      ``bleu_seeds_low``, ``bleu_combined_low`` and the same with ``_high``. Columns of further test sets end
      in their name, as in ``bleu_seeds_low_test_long``. Without translations there is only the interval over
      seeds, and for one seed, which is its own mean, the interval of the run.
    - With translations, ``bleu_smallest_difference`` is the smallest true difference between two models that
      the experiment would have found, see ``smallest_differences``; also for chrF and further test sets.

    Args:
        finished: the experiment.
        scored: its test sets by name, as returned by ``score_tests``; empty if there are no translations.

    Returns:
        One row per label, in the order of the experiment's table, with the column names of its runs.
    """
    import pandas as pd

    test_by_suffix = {f"_{test}" if number else "": test for number, test in enumerate(scored)}
    suffixes = {test: suffix for suffix, test in test_by_suffix.items()}
    matched = match_runs(scored)
    smallest = {
        f"{metric}_smallest_difference{suffixes[test]}": difference
        for (test, metric), difference in smallest_differences(matched, len(matched)).items()
    }
    rows = []
    for label, runs in finished.labels.items():
        by_suffix = {
            suffix: list(scored[test].models[label].values()) for suffix, test in test_by_suffix.items()
        }
        rows.append(_aggregate_row([run.result.flat() for run in runs], by_suffix) | smallest)
    return pd.DataFrame(rows)


def _aggregate_row(seed_rows: Sequence[Row], scored: Mapping[str, Sequence[ScoredRun]]) -> Row:
    """Aggregate the rows of one label.

    Args:
        seed_rows: one row per seed.
        scored: the translations of the label, by suffix of the columns of their test set.

    Returns:
        One row; an interval that is not known is NaN, so that pandas gives its column a numeric type.
    """
    aggregate: Row = {}
    for name in dict.fromkeys(name for row in seed_rows for name in row):
        limit = _LIMIT.fullmatch(name)
        if name == "seed":
            aggregate["seeds"] = len(seed_rows)
        elif name in ("longer_gain", "longer_factor"):  # measured on one seed only
            aggregate[name] = next((row[name] for row in seed_rows if row[name] is not None), None)
        elif limit is None:
            aggregate |= _over_seeds(name, [row.get(name) for row in seed_rows])
        elif limit["end"] == "low":
            metric, suffix = limit["metric"], limit["suffix"]
            if suffix in scored and metric in COMPARED_METRICS:
                intervals = model_intervals([run.scores[metric] for run in scored[suffix]])
            else:
                intervals = _intervals_of_rows(seed_rows, metric, suffix)
            columns = intervals.columns(metric, suffix)
            aggregate |= {key: math.nan if value is None else value for key, value in columns.items()}
    return aggregate


def _intervals_of_rows(seed_rows: Sequence[Row], metric: str, suffix: str) -> Intervals:
    """Return the intervals of a mean that are known without the translations.

    The bootstrap intervals of several runs do not give that of their mean, because the runs are good and bad
    on the same sentences.
    """
    names = [f"{metric}{end}{suffix}" for end in ("", "_ci_low", "_ci_high")]
    if any(row.get(name) is None for row in seed_rows for name in names):
        return Intervals(None, None, None)
    score, low, high = names
    if len(seed_rows) == 1:
        return Intervals(Interval(seed_rows[0][low], seed_rows[0][high]), None, None)
    intervals = Intervals(None, seed_interval([row[score] for row in seed_rows]), None)
    return clip_intervals(intervals) if metric in COMPARED_METRICS else intervals


def _over_seeds(name: str, values: Sequence[Any]) -> Row:
    """Aggregate the values of column ``name``, one value per seed."""
    all_equal = all(value == values[0] for value in values)
    if not all(isinstance(value, int | float) for value in values):
        return {name: values[0] if all_equal else None}
    # Equal values stay as they are, so that a count remains an integer.
    mean = values[0] if all_equal else fmean(values)
    return {name: mean, f"{name}_sd": stdev(values) if len(values) > 1 else math.nan}
