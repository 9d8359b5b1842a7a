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
from compare.analysis.tables import Row, Table
from compare.models.registry import Architecture
from compare.optim import OptimConfig
from compare.scoring.score import corpus_bleu
from compare.studies.kit import Panel, draw_panels
from compare.studies.study import Claim, Settings, StudyResult, at_least
from compare.studies.tasks import PLAIN, RECURRENT, Build, embedded_task, family_of, fit, lstm
from data.corpus import Pairs
from seq2seq.config import Seq2SeqConfig

logger = logging.getLogger(__name__)

FORWARD, REVERSED, BOTH = "LSTM, forward", "LSTM, reversed", "LSTM, both directions"
DIRECTIONS = {"forward": FORWARD, "backward": REVERSED, "both": BOTH}
EDGES = (0, 5, 7, 10, 15, 20, 25, 1_000)
"""Upper bounds of the length buckets in words; each bucket begins above the bound before it."""
GAIN = 2.0
"""BLEU by which one model must exceed another: more than half the 95% interval of a thousand sentences."""


class Translations(NamedTuple):
    """A test set and its translations by each model."""

    method: str
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
    return StudyResult(
        method=f"{found.method} BLEU of a corpus (sacreBLEU, 13a, cased), of all sentences and by the words "
        "of the source.",
        tables={
            "bleu": Table("BLEU by words of the source.", list(rows.values())),
            "sentences": Table("Test sentences by words of the source.", [sizes]),
        },
        claims=judge({kind: rows[name] for kind, name in found.kinds.items()}),
        figure=draw_panels(
            Panel(
                title="Translation quality by length",
                x="words of the source",
                y="BLEU",
                lines={name: (places, [row[label] for label in buckets]) for name, row in rows.items()},
                limits=(0, None),
                ticks=list(buckets),
            )
        ),
    )


def train(settings: Settings) -> Translations:
    """Train the three models and translate."""
    longest, pairs, tests, hidden, tokens, updates = (
        (6, 200, 60, 8, 128, 2) if settings.quick else (10, 60_000, 3_000, 256, 1_024, 2_000)
    )
    task = embedded_task(settings.seed, train=pairs, test=tests, longest=longest)
    lines: dict[str, Sequence[str]] = {}
    for kind, build in designs(hidden).items():
        logger.info(f"reversal: {kind}, {updates:,} updates")
        torch.manual_seed(settings.seed)
        model = build(*task.sizes)
        optim = OptimConfig(learning_rate=3e-3, warmup_updates=min(100, updates))
        fit(model, task.train, optim, batch_tokens=tokens, updates=updates, seed=settings.seed)
        lines[kind] = task.translate(model)
    src, tgt = task.sizes
    method = (
        f"Three models of one size (embeddings of {hidden // 2}, states of {hidden}), one layer per side, "
        "read the source in one direction: a plain LSTM forward, the same with its source reversed, and "
        f"forward with additive attention. Each sees the same {updates:,} batches of about {tokens:,} target "
        f"tokens, in fp32, of the embedded English-German corpus cut to sources of at most {longest} words "
        f"({len(task.train):,} pairs, vocabularies of {src:,} and {tgt:,} words), and translates "
        f"{len(task.test.src):,} new sentences by greedy search."
    )
    return Translations(method, task.test, lines, {kind: kind for kind in lines})


def read(folder: Path, data_root: str = "") -> Translations:
    """Read the translations of the first test set by an experiment's finished runs."""
    finished = load_finished(folder, data_root=data_root)
    test = finished.corpus.tests[0]
    method = (
        f"The first test set of the experiment {folder.resolve().name}, as its finished runs translated it."
    )
    found = Translations(method, finished.corpus.splits[test], {}, {})
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


def designs(hidden: int) -> dict[str, Build]:
    """Configure the three models; the second and third each differ from the first in one option."""
    build = partial(lstm, size=hidden, embedding_size=hidden // 2, dropout=0.1, tie="output")
    return {
        FORWARD: build(PLAIN, direction="forward"),
        REVERSED: build(PLAIN, direction="backward"),
        RECURRENT: build(RECURRENT, direction="forward"),
    }


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


def judge(rows: Mapping[str, Row]) -> list[Claim]:
    """Compare the claims with the rows of the kinds present.

    Raises:
        ValueError: no two kinds can be compared.
    """
    claims = []
    if FORWARD in rows and REVERSED in rows:
        forward, backward = rows[FORWARD], rows[REVERSED]
        longest = list(forward)[-1]
        claims += [
            at_least(
                "A reversed source helps a plain LSTM: BLEU gained", backward["all"] - forward["all"], GAIN
            ),
            at_least(
                f"It does so for long sentences too ({longest} words): BLEU gained",
                backward[longest] - forward[longest],
                GAIN,
            ),
        ]
    plain = [row for kind, row in rows.items() if kind != RECURRENT]
    if RECURRENT in rows and plain:
        attention, best = rows[RECURRENT], max(plain, key=lambda row: float(row["all"]))
        claims += [
            at_least(
                f"Attention helps more: BLEU gained over {best['model']}",
                attention["all"] - best["all"],
                GAIN,
            ),
            at_least(
                "Attention loses less with length: BLEU of the longest sentences over that of the shortest, "
                f"minus the same ratio of {best['model']}",
                share_at_longest(attention) - share_at_longest(best),
                0.1,
            ),
        ]
    if not claims:
        raise ValueError("nothing to compare: needs a plain LSTM beside a reversed one or one with attention")
    return claims


def share_at_longest(row: Row) -> float:
    """Compute the BLEU of the longest sentences as a share of that of the shortest."""
    parts = [value for label, value in row.items() if label not in ("model", "all")]
    return float(parts[-1] / parts[0]) if parts[0] else 0.0
