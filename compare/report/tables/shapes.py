"""Shapes of a table: one row per run, or one row per model with means over seeds or one column per seed."""

import logging
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from compare.config.plugins import plugin_problem
from compare.results.store import experiment_names, load_results, read_results
from data.text.paths import as_paths

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

SPREAD_OUT = ("bleu", "length_ratio", "brevity_penalty", "chrf", "perplexity", "train_tokens_per_s")
"""Columns that a wide table has once per seed, if any run has a value."""


class TableShape(StrEnum):
    """Shapes of tables."""

    ROWS = "rows"
    AGGREGATED = "aggregated"
    WIDE = "wide"


def load_table(
    folders: str | Path | Sequence[str | Path], shape: str = "rows", *, data_root: str = ""
) -> "pd.DataFrame":
    """Load the results of experiments in one of the shapes.

    - rows: one row per run.
    - aggregated: one row per model with means over seeds and ``<column>_sd``; BLEU has three intervals, or
      without corpus and translations the one over seeds.
    - wide: one row per model, with the columns ``SPREAD_OUT`` once per seed.

    Args:
        folders: one or more folders of experiments or of single runs.
        shape: rows, aggregated or wide.
        data_root: the folder of the corpus, which aggregated reads; empty: that of the config.

    Returns:
        A data frame that ``render_table`` formats.

    Raises:
        ValueError: an unknown shape, or (aggregated) no finished run.
    """
    folders = as_paths(folders)
    match shape:
        case TableShape.ROWS:
            return load_results(*folders)
        case TableShape.AGGREGATED:
            return _aggregated(folders, data_root)
        case TableShape.WIDE:
            return _wide(load_results(*folders))
    raise ValueError(f"no table shape {shape!r}: choose {', '.join(TableShape)}")


def default_shape(folders: Sequence[Path]) -> TableShape:
    """Return the shape of a table for people: aggregated where a model has several seeds, else rows.

    Rows that have not ended, or failed, have no place in means and must be seen, so that a table with one of
    them has all rows. So has one of runs whose plug-ins are not here: means need their settings.

    Args:
        folders: folders of experiments or of single runs.
    """
    frame = load_results(*folders)
    several = frame.groupby(["experiment", "label"])["seed"].nunique().max() > 1
    are_experiments = all((folder / "experiment.json").is_file() for folder in folders)
    if several and are_experiments and (frame["status"] == "done").all():
        runs = [folder / result.run for folder in folders for result in read_results(folder)]
        return TableShape.ROWS if any(map(plugin_problem, runs)) else TableShape.AGGREGATED
    return TableShape.ROWS


def _aggregated(folders: Sequence[Path], data_root: str) -> "pd.DataFrame":
    """Aggregate the seeds of each folder's models."""
    import pandas as pd

    from compare.analysis.significance.aggregate import aggregate_seeds
    from compare.analysis.significance.scored_tests import score_tests
    from compare.report.loaded_experiment import load_for_report

    frames = []
    for folder, name in experiment_names(folders).items():
        loaded = load_for_report(folder, data_root=data_root)
        if loaded.no_texts:
            logger.warning("%s: no intervals over sentences: %s", folder, loaded.no_texts)
        scored = {} if loaded.no_texts else score_tests(loaded.finished)
        frame = aggregate_seeds(loaded.finished, scored)
        frame.insert(0, "experiment", name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _wide(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return one row per label of an experiment, in the order of the rows."""
    keys = ["experiment", "label"]
    several = frame["experiment"].nunique() > 1
    wide = frame.pivot(index=keys, columns="seed", values=list(SPREAD_OUT)).dropna(axis=1, how="all")
    wide.columns = wide.columns.map(lambda pair: f"{pair[0]} seed {pair[1]}")
    ordered = frame[keys].drop_duplicates().merge(wide.reset_index(), on=keys)
    return ordered if several else ordered.drop(columns="experiment")
