"""The translations of a finished experiment, and the kinds of models that ``reversal`` tells apart in it."""

from pathlib import Path
from typing import NamedTuple

from compare.models import resolve
from compare.parse import load_experiment
from compare.prepare import load_corpus
from compare.presets import Architecture
from compare.results import read_results
from data.corpus import Pairs
from data.lines import read_lines
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
    """Read how the finished runs of an experiment translated its first test set.

    Raises:
        ValueError: no finished run, or translations that do not fit the test set.
    """
    done = [row for row in read_results(folder) if row.status == "done"]
    if not done:
        raise ValueError(f"{folder} holds no finished run: run the experiment to its end first")
    several = len({row.seed for row in done}) > 1
    experiments = {f"{row.label}-seed{row.seed}": folder / f"{row.label}-seed{row.seed}" for row in done}
    loaded = {name: load_experiment(run / "config.toml") for name, run in experiments.items()}
    corpus = load_corpus(next(iter(loaded.values())).data)
    test = corpus.tests[0]
    found = Translations(corpus.splits[test], {}, {})
    for row, (name, experiment) in zip(done, loaded.items(), strict=True):
        path = experiments[name] / f"{test}.hyp"
        lines = read_lines(path, allow_blank=True)
        if len(lines) != len(found.pairs.src):
            raise ValueError(
                f"{path} has {len(lines)} lines, but {test} {len(found.pairs.src)}: data.root has changed"
            )
        label = name if several else row.label
        found.lines[label] = list(lines)
        kind = kind_of(resolve(experiment.models[0]).architecture)
        if kind is not None:
            found.kinds.setdefault(kind, label)
    return found


def kind_of(architecture: Architecture) -> str | None:
    """Which of the four kinds a model is; None for any other."""
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    if architecture.attention is not None:
        return ATTENTION
    return {"forward": FORWARD, "backward": REVERSED, "both": BOTH}[architecture.direction]
