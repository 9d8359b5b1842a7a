"""Translation quality by length: plain LSTM, LSTM with reversed source, LSTM with attention.

Sutskever et al. 2014 (section 3.3) report that reversing the source improves a plain LSTM, for long sentences
too. Bahdanau et al. 2015 (figure 2, section 5.2.2) report that attention helps most for long sentences.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from compare.analysis.tables import Row, Table
from compare.optim import OptimConfig
from compare.report.plots import make_panels
from compare.scoring.score import corpus_bleu
from compare.studies.figures import draw_lines
from compare.studies.study import Claim, Settings, StudyResult, at_least
from compare.studies.tasks import (
    ATTENTION,
    FORWARD,
    REVERSED,
    Translations,
    embedded_task,
    fit,
    read_translations,
)
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import Seq2Seq

logger = logging.getLogger(__name__)

EDGES = (0, 5, 7, 10, 15, 20, 25, 1_000)
"""Upper bounds of the length buckets in words; each bucket begins above the bound before it."""
GAIN = 2.0
"""BLEU by which one model must exceed another: more than half the 95% interval of a thousand sentences."""
TRAINED = """\
Three models of one size ({size}), one layer per side, read the source in one direction: a plain LSTM forward,
the same with its source reversed, and forward with additive attention. Each sees the same {updates:,}
batches of about {tokens:,} target tokens, in fp32, of the embedded English-German corpus cut to sources of
at most {longest} words ({pairs:,} pairs, vocabularies of {src:,} and {tgt:,} words), and translates
{tests:,} new sentences by greedy search."""
READ = "The first test set of the experiment {folder}, as its finished runs translated it."
SCORED = " BLEU of a corpus (sacreBLEU, 13a, cased), of all sentences and by the words of the source."


def run(settings: Settings) -> StudyResult:
    """Train the three models, or read a finished experiment, and score by length."""
    if settings.runs is None:
        method, translations = train(settings)
    else:
        method, translations = (
            READ.format(folder=settings.runs.resolve().name),
            read_translations(settings.runs, settings.data_root),
        )
    buckets = by_length(translations.pairs.src)
    references = translations.pairs.tgt
    rows = [score(name, lines, references, buckets) for name, lines in translations.lines.items()]
    figure, (axes,) = make_panels(1)
    positions = list(range(len(buckets)))
    lines = {row["model"]: (positions, [row[label] for label in buckets]) for row in rows}
    draw_lines(axes, lines, title="Translation quality by length", x="words of the source", y="BLEU")
    axes.set_xticks(positions, list(buckets))
    axes.set_ylim(bottom=0)
    sizes = {"all": len(references), **{label: len(indices) for label, indices in buckets.items()}}
    return StudyResult(
        method=method + SCORED,
        tables={
            "bleu": Table("BLEU by words of the source.", rows),
            "sentences": Table("Test sentences by words of the source.", [sizes]),
        },
        claims=judge(
            {kind: row for kind, name in translations.kinds.items() for row in rows if row["model"] == name}
        ),
        figure=figure,
    )


def train(settings: Settings) -> tuple[str, Translations]:
    """Train the three models and translate; return a description of the method, and the translations."""
    longest, pairs, tests, hidden, tokens, updates = (
        (6, 200, 60, 8, 128, 2) if settings.quick else (10, 60_000, 3_000, 256, 1_024, 2_000)
    )
    logger.info("reversal: drawing the corpus")
    task = embedded_task(settings.seed, train=pairs, test=tests, longest=longest)
    translations = Translations(task.test, {}, {})
    for name, config in designs(hidden).items():
        logger.info(f"reversal: {name}, {updates:,} updates")
        torch.manual_seed(settings.seed)
        model = Seq2Seq(config, *task.sizes)
        optim = OptimConfig(learning_rate=3e-3, warmup_updates=min(100, updates))
        fit(model, task.train, optim, batch_tokens=tokens, updates=updates, seed=settings.seed)
        translations.lines[name] = task.translate(model)
        translations.kinds[name] = name
    method = TRAINED.format(
        size=f"embeddings of {hidden // 2}, states of {hidden}",
        updates=updates,
        tokens=tokens,
        longest=longest,
        pairs=len(task.train),
        src=task.sizes[0],
        tgt=task.sizes[1],
        tests=len(task.test.src),
    )
    return method, translations


def designs(hidden: int) -> dict[str, Seq2SeqConfig]:
    """Configure the three models; the second and third each differ from the first in one option."""
    plain = Seq2SeqConfig(
        attention=None,
        direction="forward",
        embedding_size=hidden // 2,
        hidden_size=hidden,
        dropout=0.1,
        tie="output",
    )
    return {
        FORWARD: plain,
        REVERSED: replace(plain, direction="backward"),
        ATTENTION: replace(plain, attention=AttentionConfig(score="additive")),
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


def score(name: str, lines: Sequence[str], references: Sequence[str], buckets: dict[str, list[int]]) -> Row:
    """Compute a model's BLEU over all sentences and over each bucket."""
    parts = {
        label: corpus_bleu([lines[i] for i in indices], [references[i] for i in indices])
        for label, indices in buckets.items()
    }
    return {"model": name, "all": corpus_bleu(lines, references), **parts}


def judge(rows: dict[str, Row]) -> list[Claim]:
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
    plain = [row for kind, row in rows.items() if kind != ATTENTION]
    if ATTENTION in rows and plain:
        attention, best = rows[ATTENTION], max(plain, key=lambda row: float(row["all"]))
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
