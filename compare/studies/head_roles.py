"""Roles of a Transformer's attention heads: position, alignment, and how concentrated their weights are.

Voita et al. 2019 (section 4) call a head positional if at least 90% of the time its largest weight is at the
same relative position, in practice -1 or +1, and find such heads in every trained encoder. Raganato and
Tiedemann 2018 find heads of trained encoders that attend to neighbours, sharper in some layers than in
others.

Shapes: B sentences, H heads, T queries, S keys.
"""

import logging
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from compare.analysis.finished_experiment import load_finished
from compare.analysis.gold_alignments import Gold, corpus_gold
from compare.analysis.tables import Row, Table
from compare.analysis.word_attention import attend_words
from compare.decoding.translator import Translator
from compare.models.registry import build as build_model
from compare.report.plots import make_panels
from compare.results.trained_model import load_model
from compare.studies.designs import Design, make_plan, train_designs
from compare.studies.figures import draw_lines
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import TRANSFORMER, build_translator, embedded_task, make_split, runs_by_family
from data.batches import make_batch
from data.corpus import Corpus, Pairs

logger = logging.getLogger(__name__)

POSITIONAL = 0.9
"""Share of queries from which on a head is positional (Voita et al. 2019, section 4)."""
ALIGNING = 0.5
"""Share of the weight on gold words from which on a head aligns."""
SPREAD = 0.2
"""Difference of entropies, as shares of their maximum, from which on heads of one kind differ."""
OFFSETS = {"previous": -1, "itself": 0, "next": 1}
"""Relative positions whose weights are measured."""
TRAINED = """\
Pre-norm Transformers of two layers per side (d = {d}, {heads} heads, dropout {dropout}) translate the
embedded corpus ({pairs:,} pairs, words): {plan}, after {warmup} updates of warm-up; the weights of the lowest
validation loss are kept. """
READ = "The Transformer of the experiment {folder}, the first if there are several. "
MEASURED = """\
Weights while {tests:,} test pairs are read and their references predicted. Entropy is a share of its maximum,
the logarithm of the number of keys (queries with one key do not count). Distance is the mean of |query - key|
under the weights, in tokens. Peak is the share of queries whose largest weight is at that relative position,
for which it exists. Gold is the share of a head's weight on the source words to which gold links connect the
target word, of target words with links. Untrained models are measured in the same way. Each claim is tested
for every seed. The rule was fixed before: a head is positional with peaks at one neighbour for
{positional:.0%} of the queries, and aligns with {aligning:.0%} of its weight on gold words; entropies differ
from {spread} on. Hold means with all seeds; undecided: with some."""


def run(settings: Settings) -> StudyResult:
    """Measure the heads of trained models, or of a finished experiment, and of untrained ones."""
    if settings.runs is None:
        method, translators, test = train(settings)
    else:
        method, translators, test = read(settings.runs, 100, settings.data_root)
    first = min(translators)
    gold = _gold(test)
    rows: list[Row] = []
    for number, (seed, translator) in enumerate(translators.items(), start=1):
        logger.info(f"head-roles: measuring model {number} of {len(translators)}")
        torch.manual_seed(settings.seed + number)
        for state, each in (("trained", translator), ("untrained", untrained(translator))):
            rows += [{"model": state, "seed": seed, **row} for row in measure(each, test, gold)]
    measured = MEASURED.format(tests=len(test.src), positional=POSITIONAL, aligning=ALIGNING, spread=SPREAD)
    return StudyResult(
        method=method + measured,
        tables={"heads": Table("Every head of every model.", rows)},
        claims=judge(rows, has_gold=gold is not None),
        figure=plot([row for row in rows if row["model"] == "trained" and row["seed"] == first]),
    )


def train(settings: Settings) -> tuple[str, dict[int, Translator], Pairs]:
    """Train the models; return a description of the method, models by seed, test pairs with gold links."""
    d, dropout, pairs, valid, tests = (16, 0.1, 60, 10, 5) if settings.quick else (128, 0.1, 20_000, 200, 100)
    warmup = 1 if settings.quick else 100
    plan = make_plan(settings, updates=900, batch_tokens=1_024, measure_every=50, learning_rates=(3e-3, 8e-3))
    task = embedded_task(settings.seed, train=pairs, valid=valid, test=tests)
    design = Design(build=partial(build_translator, TRANSFORMER, d, dropout), warmup_updates=warmup)
    trained = train_designs("head-roles", {TRANSFORMER: design}, task, plan)[TRANSFORMER]
    method = TRAINED.format(d=d, heads=d // 16, dropout=dropout, pairs=pairs, plan=plan.text, warmup=warmup)
    translators = map(task.translator, trained.models)
    return method, dict(zip(plan.seeds, translators, strict=True)), task.test


def read(folder: Path, tests: int, data_root: str = "") -> tuple[str, dict[int, Translator], Pairs]:
    """Load the Transformer of a finished experiment, all seeds, and the first pairs of its test set.

    Raises:
        ValueError: the experiment has no finished Transformer, or its weights are missing.
    """
    finished = load_finished(folder, data_root=data_root)
    runs = runs_by_family(finished).get(TRANSFORMER)
    if runs is None:
        raise ValueError(f"{folder} has no finished Transformer: nothing to measure")
    corpus = finished.corpus
    pairs = Pairs(*(column[:tests] for column in corpus.splits[corpus.tests[0]]))
    translators = {seed: load_model(run.folder) for seed, run in sorted(runs.items())}
    return READ.format(folder=folder.resolve().name), translators, pairs


def untrained(translator: Translator) -> Translator:
    """Make the same model with fresh weights."""
    src, tgt = translator.vocabularies
    model = build_model(translator.model.config, len(src), len(tgt))
    return Translator(model, translator.vocabularies, translator.decode, translator.device)


def _gold(test: Pairs) -> Gold | None:
    """Return the gold links of the pairs, if there are any."""
    if not test.links:
        return None
    return corpus_gold(Corpus(name="test", src_lang="", tgt_lang="", splits={"test": test}), "test")


def measure(translator: Translator, test: Pairs, gold: Gold | None) -> list[Row]:
    """Measure every head of a model: one row per head."""
    vocabularies = translator.vocabularies
    split = make_split(vocabularies.src.encode_all(test.src), vocabularies.tgt.encode_all(test.tgt))
    batch = make_batch(split, np.arange(len(split)))
    with torch.inference_mode():
        attention = translator.model.eval().attention(batch.src, batch.src_mask, batch.tgt_in)
    shares = {} if gold is None else gold_shares(translator, gold)
    rows: list[Row] = []
    for layer, weights in attention.items():
        queries = batch.src_mask if layer.startswith("encoder") else batch.tgt_mask
        is_self = not layer.startswith("cross")
        for head in range(weights.size(1)):
            name = f"{layer} head {head}"
            row: Row = {"head": name, **roles(weights[:, head], queries, batch.src_mask, layer)}
            if is_self:
                row |= offsets(weights[:, head], queries)
            elif name in shares:
                row["gold"] = shares[name]
            rows.append(row)
    return rows


def roles(weights: Tensor, queries: Tensor, src_mask: Tensor, layer: str) -> Row:
    """Compute entropy and distance of a head.

    Args:
        weights: (B, T, S).
        queries: True at real queries, (B, T).
        src_mask: True at real source tokens, (B, S'); S' is S unless a decoder attends to itself.
        layer: its name, which says whether keys are source tokens or earlier target tokens.
    """
    positions = torch.arange(weights.size(1))
    if layer.startswith("decoder"):
        keys = (positions + 1).expand(len(weights), -1)  # causal: position t has t + 1 keys
    else:
        keys = src_mask.sum(1, keepdim=True).expand(-1, weights.size(1))
    several = queries & (keys > 1)
    distance = (positions[:, None] - torch.arange(weights.size(2))).abs()
    return {
        "entropy": float((torch.special.entr(weights).sum(2)[several] / keys[several].log()).mean()),
        "distance": float((weights * distance).sum(2)[queries].mean()),
    }


def offsets(weights: Tensor, queries: Tensor) -> Row:
    """Compute the shares of weights and of peaks at each relative position, from (B, T, T) and (B, T)."""
    length = weights.size(1)
    positions, peaks = torch.arange(length), weights.argmax(2)
    lengths = queries.sum(1, keepdim=True)
    row: Row = {}
    for name, offset in OFFSETS.items():
        keys = positions + offset
        exists = queries & (keys >= 0) & (keys < lengths)
        at_offset = weights.gather(2, keys.clamp(0, length - 1).expand(len(weights), -1).unsqueeze(2))
        row[name] = float(at_offset.squeeze(2)[exists].mean())
        row[f"{name} peak"] = float((peaks == keys)[exists].float().mean())
    return row


def gold_shares(translator: Translator, gold: Gold) -> dict[str, float]:
    """Compute the share of each head's weight on gold words, over target words with links."""
    on_gold: dict[str, float] = {}
    total: dict[str, float] = {}
    for pair in attend_words(translator, gold.pairs):
        links = gold.links[pair.number].possible
        linked = links.any(1)
        for head, weights in zip(pair.heads, pair.weights, strict=True):
            name = str(head)
            on_gold[name] = on_gold.get(name, 0.0) + float((weights * links)[linked].sum())
            total[name] = total.get(name, 0.0) + float(weights[linked].sum())
    return {name: on_gold[name] / weight for name, weight in total.items() if weight}


def plot(rows: list[Row]) -> Figure:
    """Plot entropy by head, and the shares of neighbours and gold words."""
    figure, (left, right) = make_panels(2)
    places = list(range(len(rows)))
    nan = float("nan")
    draw_lines(
        left,
        {"entropy (share of its maximum)": (places, [row["entropy"] for row in rows])},
        title="Entropy by head, first seed",
        x="head",
        y="share",
    )
    names = ("previous", "next", "gold")
    draw_lines(
        right,
        {name: (places, [row.get(name, nan) for row in rows]) for name in names},
        title="Weight by head, first seed",
        x="head",
        y="share of weight",
    )
    labels = [row["head"].replace(" head ", ".") for row in rows]
    for axes in (left, right):
        axes.set_xticks(places, labels, rotation=90, fontsize=6)
        axes.set_ylim(0, 1.05)
    return figure


def judge(rows: list[Row], *, has_gold: bool) -> list[Claim]:
    """Compare the claims with the heads of each seed."""
    seeds = sorted({row["seed"] for row in rows})

    def heads(state: str, seed: int, side: str) -> list[Row]:
        return [
            row
            for row in rows
            if (row["model"], row["seed"]) == (state, seed) and row["head"].startswith(side)
        ]

    def most_positional(state: str) -> list[float]:
        return [
            max(max(row["previous peak"], row["next peak"]) for row in heads(state, seed, "encoder"))
            for seed in seeds
        ]

    def widest(state: str) -> list[float]:
        entropies = [[row["entropy"] for row in heads(state, seed, "encoder")] for seed in seeds]
        return [max(values) - min(values) for values in entropies]

    claims = [
        at_least(
            "A trained encoder has a positional head: largest share of peaks at one neighbour",
            most_positional("trained"),
            POSITIONAL,
        ),
        at_most("An untrained one has none: the same share", most_positional("untrained"), 0.5),
        at_least("Trained encoder heads specialise: highest minus lowest entropy", widest("trained"), SPREAD),
        at_most("Untrained ones do not: the same difference", widest("untrained"), SPREAD),
    ]
    if has_gold:
        aligned = {
            state: [max(row["gold"] for row in heads(state, seed, "cross")) for seed in seeds]
            for state in ("trained", "untrained")
        }
        claims += [
            at_least(
                "A head of attention to the source aligns words: largest share of weight on gold words",
                aligned["trained"],
                ALIGNING,
            ),
            at_most("An untrained one does not: the same share", aligned["untrained"], ALIGNING),
        ]
    return claims
