"""The kinds of models that ``reversal`` tells apart in a finished experiment, and what they translated."""

from pathlib import Path
from typing import NamedTuple

from compare.analysis.finished_experiment import load_finished
from compare.models.registry import Architecture
from data.corpus import Pairs
from seq2seq.config import Seq2SeqConfig

FORWARD, REVERSED, BOTH = "LSTM, forward", "LSTM, reversed", "LSTM, both directions"
ATTENTION = "LSTM with attention"


class Translations(NamedTuple):
    """A test set and what each model made of it."""

    pairs: Pairs
    lines: dict[str, list[str]]
    """Translations by the model's name."""
    kinds: dict[str, str]
    """The name of the first model of each kind that there is."""


def read_translations(folder: Path) -> Translations:
    """Read how the finished runs of an experiment translated its first test set."""
    finished = load_finished(folder)
    test = finished.corpus.tests[0]
    found = Translations(finished.corpus.splits[test], {}, {})
    for name, run in finished.named.items():
        found.lines[name] = list(run.outputs[test])
        kind = kind_of(run.run.model.architecture)
        if kind is not None:
            found.kinds.setdefault(kind, name)
    return found


def kind_of(architecture: Architecture) -> str | None:
    """Which of the four kinds a model is; None for any other."""
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    if architecture.attention is not None:
        return ATTENTION
    return {"forward": FORWARD, "backward": REVERSED, "both": BOTH}[architecture.direction]
