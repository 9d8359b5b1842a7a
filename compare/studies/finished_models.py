"""Models of a finished experiment by the kinds that ``reversal`` compares, and their translations."""

from pathlib import Path
from typing import NamedTuple

from compare.analysis.finished_experiment import load_finished
from compare.models.registry import Architecture
from data.corpus import Pairs
from seq2seq.config import Seq2SeqConfig

FORWARD, REVERSED, BOTH = "LSTM, forward", "LSTM, reversed", "LSTM, both directions"
ATTENTION = "LSTM with attention"


class Translations(NamedTuple):
    """A test set and its translations by each model."""

    pairs: Pairs
    lines: dict[str, list[str]]
    """Translations by the model's name."""
    kinds: dict[str, str]
    """Name of the first model of each kind present."""


def read_translations(folder: Path) -> Translations:
    """Read the translations of the first test set by an experiment's finished runs."""
    finished = load_finished(folder)
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
    return {"forward": FORWARD, "backward": REVERSED, "both": BOTH}[architecture.direction]
