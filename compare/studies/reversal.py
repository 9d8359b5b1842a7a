"""Translation quality by length: plain LSTM, LSTM with reversed source, LSTM with attention.

Sutskever et al. 2014 (section 3.3) report that reversing the source improves a plain LSTM, for long sentences
too. Bahdanau et al. 2015 (figure 2, section 5.2.2) report that attention helps most for long sentences.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch

from compare.analysis.tables import Row
from compare.models.styles import PLAIN, RECURRENT
from compare.optim import OptimConfig
from compare.scoring import corpus_bleu
from compare.studies.kit import Panel, conclude
from compare.studies.study import Settings, StudyResult
from compare.studies.training import Build, embedded_task, fit, lstm

logger = logging.getLogger(__name__)

FORWARD, REVERSED = "LSTM, forward", "LSTM, reversed"
EDGES = (0, 5, 7, 10, 15, 20, 25, 1_000)
"""Upper bounds of the length buckets in words; each bucket begins above the bound before it."""


def run(settings: Settings) -> StudyResult:
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
