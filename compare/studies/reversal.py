"""Translation quality by length: plain LSTM, LSTM with reversed source, LSTM with attention.

Sutskever et al. 2014 (section 3.3) report that reversing the source improves a plain LSTM, for long sentences
too. Bahdanau et al. 2015 (figure 2, section 5.2.2) report that attention helps most for long sentences.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch

from compare.analysis.finished_experiment import load_finished
from compare.analysis.tables import Row
from compare.models.registry import Architecture
from compare.models.styles import PLAIN, RECURRENT
from compare.optim import OptimConfig
from compare.scoring.score import corpus_bleu
from compare.studies.kit import Panel, conclude
from compare.studies.study import Settings, StudyResult, describe
from compare.studies.tasks import Build, embedded_task, family_of, fit, lstm
from data.corpus import Pairs
from seq2seq.config import Seq2SeqConfig

logger = logging.getLogger(__name__)

FORWARD, REVERSED, BOTH = "LSTM, forward", "LSTM, reversed", "LSTM, both directions"
DIRECTIONS = {"forward": FORWARD, "backward": REVERSED, "both": BOTH}
EDGES = (0, 5, 7, 10, 15, 20, 25, 1_000)
"""Upper bounds of the length buckets in words; each bucket begins above the bound before it."""


class Translations(NamedTuple):
    """A test set and its translations by each model."""

    origin: str
    """Where they come from, in words."""
    pairs: Pairs
    lines: dict[str, Sequence[str]]
    """Translations by the model's name."""
    kinds: dict[str, str]
    """Name of the first model of each kind present."""


def run(settings: Settings) -> StudyResult:
    """Train the three models, or read a finished experiment, and score by length."""
    found = train(settings) if settings.runs is None else read(settings.runs, settings.data_root)
    buckets, references = by_length(found.pairs.src), found.pairs.tgt
    rows = {name: score(name, lines, references, buckets) for name, lines in found.lines.items()}
    sizes = {"all": len(references), **{label: len(indices) for label, indices in buckets.items()}}
    places = range(len(buckets))
    lines = {name: (places, [row[label] for label in buckets]) for name, row in rows.items()}
    return conclude(
        "reversal",
        tables={"bleu": list(rows.values()), "sentences": [sizes]},
        measured=measures({kind: rows[name] for kind, name in found.kinds.items()}),
        panels={"bleu": Panel(lines, ticks=list(buckets))},
        words={"origin": found.origin},
    )


def train(settings: Settings) -> Translations:
    """Train the three models and translate."""
    longest, pairs, tests, hidden, tokens, updates = (
        (6, 200, 60, 8, 128, 2) if settings.quick else (10, 60_000, 3_000, 256, 1_024, 2_000)
    )
    task = embedded_task(settings.seed, train=pairs, test=tests, longest=longest)
    lines: dict[str, Sequence[str]] = {}
    build_lstm = partial(lstm, size=hidden, embedding_size=hidden // 2, dropout=0.1, tie="output")
    builds: dict[str, Build] = {  # the second and the third each differ from the first in one option
        FORWARD: build_lstm(PLAIN, direction="forward"),
        REVERSED: build_lstm(PLAIN, direction="backward"),
        RECURRENT: build_lstm(RECURRENT, direction="forward"),
    }
    for kind, build in builds.items():
        logger.info(f"reversal: {kind}, {updates:,} updates")
        torch.manual_seed(settings.seed)
        model = build(*task.sizes)
        optim = OptimConfig(learning_rate=3e-3, warmup_updates=min(100, updates))
        fit(model, task.train, optim, batch_tokens=tokens, updates=updates, seed=settings.seed)
        lines[kind] = task.translate(model)
    (src, tgt), sizes = task.sizes, {"longest": longest, "tokens": tokens, "updates": updates}
    sizes |= {"embedding": hidden // 2, "hidden": hidden, "pairs": len(task.train), "src": src, "tgt": tgt}
    origin = describe("reversal")["trained"].format(**sizes, tests=len(task.test.src))
    return Translations(origin, task.test, lines, {kind: kind for kind in lines})


def read(folder: Path, data_root: str = "") -> Translations:
    """Read the translations of the first test set by an experiment's finished runs."""
    finished = load_finished(folder, data_root=data_root)
    test = finished.corpus.tests[0]
    origin = describe("reversal")["read"].format(name=folder.resolve().name)
    found = Translations(origin, finished.corpus.splits[test], {}, {})
    for name, run in finished.named.items():
        found.lines[name] = run.outputs[test]
        kind = kind_of(run.run.model.architecture)
        if kind is not None:
            found.kinds.setdefault(kind, name)
    return found


def kind_of(architecture: Architecture) -> str | None:
    """Classify a model as a plain LSTM by its direction, or one with attention; None for any other."""
    family = family_of(architecture)
    if family == PLAIN and isinstance(architecture, Seq2SeqConfig):
        return DIRECTIONS.get(architecture.direction)
    return family if family == RECURRENT else None


def by_length(sources: Sequence[str]) -> dict[str, list[int]]:
    """Group sentence indices by source length, under labels such as "6-7"; leave out empty groups."""
    words = [len(line.split()) for line in sources]
    buckets = {}
    for low, high in pairwise(EDGES):
        indices = [index for index, length in enumerate(words) if low < length <= high]
        if indices:
            shortest, longest = min(words[i] for i in indices), max(words[i] for i in indices)
            buckets[f"{shortest}-{longest}" if shortest < longest else str(longest)] = indices
    return buckets


def score(
    name: str, lines: Sequence[str], references: Sequence[str], buckets: Mapping[str, list[int]]
) -> Row:
    """Compute a model's BLEU over all sentences and over each bucket."""
    parts = {
        label: corpus_bleu([lines[i] for i in indices], [references[i] for i in indices])
        for label, indices in buckets.items()
    }
    return {"model": name, "all": corpus_bleu(lines, references), **parts}


def measures(rows: Mapping[str, Row]) -> dict[str, float | dict[str, float]]:
    """Compute the measures of the claims about the kinds present.

    Raises:
        ValueError: no two kinds can be compared.
    """
    measured: dict[str, float | dict[str, float]] = {}
    if FORWARD in rows and REVERSED in rows:
        forward, backward = rows[FORWARD], rows[REVERSED]
        longest = list(forward)[-1]
        measured["reversed"] = backward["all"] - forward["all"]
        measured["reversed_long"] = {longest: backward[longest] - forward[longest]}
    plain = [row for kind, row in rows.items() if kind != RECURRENT]
    if RECURRENT in rows and plain:
        attention, best = rows[RECURRENT], max(plain, key=lambda row: float(row["all"]))
        name, gain = best["model"], share_at_longest(attention) - share_at_longest(best)
        measured |= {"attention": {name: attention["all"] - best["all"]}, "attention_long": {name: gain}}
    if not measured:
        raise ValueError("nothing to compare: needs a plain LSTM beside a reversed one or one with attention")
    return measured


def share_at_longest(row: Row) -> float:
    """Compute the BLEU of the longest sentences as a share of that of the shortest."""
    parts = [value for label, value in row.items() if label not in ("model", "all")]
    return float(parts[-1] / parts[0]) if parts[0] else 0.0
