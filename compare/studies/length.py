"""Long sources: what a recurrent cell remembers of the first word, and what a plain LSTM translates.

**recall.** Bengio et al. 1994 train recurrent networks to remember what a sequence begins with, and show that
gradients vanish over its length, for which Hochreiter and Schmidhuber 1997 build the LSTM and Cho et al. 2014
(section 2.3) the GRU. The study ``distance`` measures the gradients of fresh models.

**reversal.** Sutskever et al. 2014 (section 3.3) report that reversing the source improves a plain LSTM, for
long sentences too. Bahdanau et al. 2015 (figure 2, section 5.2.2) report that attention helps most for long
sentences.
"""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from compare.experiment.likelihood import make_split
from compare.models.registry import count_weights
from compare.models.styles import PLAIN, RECURRENT
from compare.optim import OptimConfig
from compare.results.table import Row
from compare.scoring import corpus_bleu
from compare.studies.kit import Panel, column, conclude, lines_of, mean
from compare.studies.positions import accuracy
from compare.studies.study import Settings, StudyResult
from compare.studies.training import (
    Build,
    Task,
    embedded_task,
    fit,
    lstm,
    make_plan,
    train_designs,
)
from data.batches import Batch, make_batch
from data.encode import EncodedSplit
from data.vocabulary import EOS

logger = logging.getLogger(__name__)

# Recall of the first word.


GATED = {"LSTM": "lstm", "GRU": "gru"}
CELLS = {"RNN": "rnn", **GATED}
SYMBOLS, FIRST = 10, EOS + 1
"""Number of words, and the id of the first."""


def recall(settings: Settings) -> StudyResult:
    """Train every cell to recall the first word of a sequence, and measure by length, beyond training too."""
    longest, pairs, tests, d = (2, 60, 5, 8) if settings.quick else (20, 20_000, 500, 64)
    lengths, draw = [longest // 2, longest, 2 * longest, 4 * longest], random.Random(settings.seed)
    probes = {length: first_words([length] * tests, draw) for length in lengths}
    split = sequences([draw.randint(1, longest) for _ in range(pairs)], draw)
    valid = first_words([draw.randint(1, longest) for _ in range(tests)], draw)
    task = Task(split, valid, (FIRST + SYMBOLS, FIRST + SYMBOLS))
    plan = make_plan(settings, updates=1_200, batch_tokens=128, measure_every=100)
    builds = {name: lstm(PLAIN, d, direction="forward", cell=cell) for name, cell in CELLS.items()}
    trained = train_designs("recall", builds, task, plan)
    rows: list[Row] = [
        {"length": length, "cell": name, "seed": seed, "recalled": accuracy(model, batch)}
        for length, batch in probes.items()
        for name, each in trained.items()
        for seed, model in zip(plan.seeds, each.models, strict=True)
    ]
    means: list[Row] = [
        {
            "length": length,
            **{name: mean(column(rows, "recalled", length=length, cell=name)) for name in CELLS},
        }
        for length in lengths
    ]
    designs: list[Row] = [
        {"cell": name, "learning_rate": each.learning_rate, "weights": count_weights(each.models[0])}
        for name, each in trained.items()
    ]
    return conclude(
        "recall",
        tables={"lengths": means, "designs": designs, "seeds": rows},
        measured=recall_claims(rows, longest, lengths[-1]),
        panels={
            "lengths": Panel(
                lines_of(means, "length", CELLS),
                predicted={f"longest in training: {longest}": ([longest] * 2, [0, 1])},
            )
        },
        words={"plan": plan, "d": d, "symbols": SYMBOLS, "pairs": pairs, "tests": tests}
        | {"longest": longest, "far": lengths[-1], "chance": 1 / SYMBOLS},
    )


def sequences(lengths: Sequence[int], draw: random.Random) -> EncodedSplit:
    """Draw sequences of random words, whose translations are their first ones."""
    sources = [draw.choices(range(FIRST, FIRST + SYMBOLS), k=length) for length in lengths]
    return make_split(sources, [source[:1] for source in sources])


def first_words(lengths: Sequence[int], draw: random.Random) -> Batch:
    """Draw sequences as one batch, of whose targets the end of sentence does not count."""
    batch = make_batch(sequences(lengths, draw), np.arange(len(lengths)))
    mask = batch.tgt_mask.clone()
    mask[:, 1:] = False
    return replace(batch, tgt_mask=mask)


def recall_claims(rows: Sequence[Row], longest: int, far: int) -> dict[str, dict[str, list[float]]]:
    """Compute the measures of the claims about recall, per seed."""
    learned, kept = (
        {name: column(rows, "recalled", length=length, cell=name) for name in CELLS}
        for length in (longest, far)
    )
    return {
        "learned": learned,
        "gated": {name: kept[name] for name in GATED},
        "plain": {name: kept[name] for name in CELLS if name not in GATED},
    }


# Translation by length, the source reversed or not.


FORWARD, REVERSED = "LSTM, forward", "LSTM, reversed"
EDGES = (0, 5, 7, 10, 15, 20, 25, 1_000)
"""Upper bounds of the length buckets in words; each bucket begins above the bound before it."""


def reversal(settings: Settings) -> StudyResult:
    """Train the three models, translate and score by length."""
    longest, pairs, tests, hidden, tokens, updates = (
        (6, 200, 60, 8, 128, 2) if settings.quick else (10, 60_000, 3_000, 256, 1_024, 2_000)
    )
    task = embedded_task(settings.seed, train=pairs, test=tests, longest=longest)
    buckets, rows = by_length(task.test.src), {}
    build_lstm = partial(lstm, size=hidden, embedding_size=hidden // 2, dropout=0.1, tie="output")
    builds: dict[str, Build] = {  # the second and the third each differ from the first in one option
        FORWARD: build_lstm(PLAIN, direction="forward"),
        REVERSED: build_lstm(PLAIN, direction="backward"),
        RECURRENT: build_lstm(RECURRENT, direction="forward"),
    }
    for name, build in builds.items():
        logger.info(f"reversal: {name}, {updates:,} updates")
        torch.manual_seed(settings.seed)
        model = build(*task.sizes)
        optim = OptimConfig(learning_rate=3e-3, warmup_updates=min(100, updates))
        fit(model, task.train, optim, batch_tokens=tokens, updates=updates, seed=settings.seed)
        rows[name] = score(name, task.translate(model), task.test.tgt, buckets)
    places, (src, tgt) = range(len(buckets)), task.sizes
    lines = {name: (places, [row[label] for label in buckets]) for name, row in rows.items()}
    sentences = {"all": len(task.test.tgt), **{label: len(indices) for label, indices in buckets.items()}}
    return conclude(
        "reversal",
        tables={"bleu": list(rows.values()), "sentences": [sentences]},
        measured=measures(*rows.values()),
        panels={"bleu": Panel(lines, ticks=list(buckets))},
        words={"longest": longest, "tokens": tokens, "updates": updates, "tests": len(task.test.src)}
        | {"embedding": hidden // 2, "hidden": hidden, "pairs": len(task.train), "src": src, "tgt": tgt},
    )


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


def measures(forward: Row, backward: Row, attention: Row) -> dict[str, float | dict[str, float]]:
    """Compute the measures of the claims."""
    longest, best = list(forward)[-1], max(forward, backward, key=lambda row: float(row["all"]))
    gain = share_at_longest(attention) - share_at_longest(best)
    return {
        "reversed": backward["all"] - forward["all"],
        "reversed_long": {longest: backward[longest] - forward[longest]},
        "attention": {best["model"]: attention["all"] - best["all"]},
        "attention_long": {best["model"]: gain},
    }


def share_at_longest(row: Row) -> float:
    """Compute the BLEU of the longest sentences as a share of that of the shortest."""
    parts = [value for label, value in row.items() if label not in ("model", "all")]
    return float(parts[-1] / parts[0]) if parts[0] else 0.0
