"""Models of a finished experiment by the kinds or families that studies compare."""

from pathlib import Path
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, load_finished
from compare.models.registry import Architecture
from compare.studies.families import PLAIN, RECURRENT, TRANSFORMER
from data.corpus import Pairs
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig

FORWARD, REVERSED, BOTH = "LSTM, forward", "LSTM, reversed", "LSTM, both directions"
ATTENTION = "LSTM with attention"


class Translations(NamedTuple):
    """A test set and its translations by each model."""

    pairs: Pairs
    lines: dict[str, list[str]]
    """Translations by the model's name."""
    kinds: dict[str, str]
    """Name of the first model of each kind present."""


def read_translations(folder: Path, data_root: str = "") -> Translations:
    """Read the translations of the first test set by an experiment's finished runs.

    Args:
        folder: the experiment.
        data_root: the folder of its corpus; empty: that of its config.
    """
    finished = load_finished(folder, data_root=data_root)
    test = finished.corpus.tests[0]
    translations = Translations(finished.corpus.splits[test], {}, {})
    for name, run in finished.named.items():
        translations.lines[name] = list(run.outputs[test])
        kind = kind_of(run.run.model.architecture)
        if kind is not None:
            translations.kinds.setdefault(kind, name)
    return translations


def kind_of(architecture: Architecture) -> str | None:
    """Classify a model as one of the four kinds; None for any other."""
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    if architecture.attention is not None:
        return ATTENTION
    return {"forward": FORWARD, "backward": REVERSED, "both": BOTH}.get(architecture.direction)


def runs_by_family(finished: FinishedExperiment) -> dict[str, dict[int, FinishedRun]]:
    """Find the finished runs of each family of ``TRANSLATORS``, by seed.

    Of several models of a family the first in the order of the table counts.
    """
    found: dict[str, dict[int, FinishedRun]] = {}
    for runs in finished.labels.values():
        family = family_of(runs[0].run.model.architecture)
        if family is not None:
            found.setdefault(family, {run.result.seed: run for run in runs})
    return found


def family_of(architecture: Architecture) -> str | None:
    """Classify a model as one of ``TRANSLATORS``; None for any other."""
    if isinstance(architecture, TransformerConfig):
        return TRANSFORMER
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    return PLAIN if architecture.attention is None else RECURRENT
