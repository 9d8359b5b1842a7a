"""Roles of a Transformer's attention heads: position, alignment, and how concentrated their weights are.

Voita et al. 2019 (section 4) call a head positional if at least 90% of the time its largest weight is at the
same relative position, in practice -1 or +1, and find such heads in every trained encoder. Raganato and
Tiedemann 2018 find heads of trained encoders that attend to neighbours, sharper in some layers than in
others.

Shapes: B sentences, H heads, T queries, S keys.
"""

import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from compare.analysis.gold_alignments import Gold, corpus_gold, link_matrix
from compare.analysis.tables import Row, Table
from compare.analysis.word_attention import attend_words
from compare.decoding.translator import Translator
from compare.models.registry import build as build_model
from compare.studies.designs import RULE, SEEDS, obtain_translators
from compare.studies.kit import Panel, column, draw_panels
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import TRANSFORMER, make_split
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


def run(settings: Settings) -> StudyResult:
    """Measure the heads of trained models, or of a finished experiment, and of untrained ones."""
    tests = 5 if settings.quick else 100
    families = [TRANSFORMER]
    found = obtain_translators("head-roles", settings, families, needed=families, tests=tests)
    test, translators = Pairs(*(part[:tests] for part in found.test)), found.models[TRANSFORMER]
    gold = _gold(test)
    rows: list[Row] = []
    for number, (seed, translator) in enumerate(translators.items(), start=1):
        logger.info(f"head-roles: measuring model {number} of {len(translators)}")
        torch.manual_seed(settings.seed + number)
        for state, each in (("trained", translator), ("untrained", untrained(translator))):
            rows += [{"model": state, "seed": seed, **row} for row in measure(each, test, gold)]
    shown = [row for row in rows if (row["model"], row["seed"]) == ("trained", min(translators))]
    return StudyResult(
        method=f"""
            {found.method} Weights while {len(test.src):,} test pairs are read and their references predicted.
            Entropy is a share of its maximum, the logarithm of the number of keys (queries with one key do
            not count). Distance is the mean of |query - key| under the weights, in tokens. Peak is the share
            of queries whose largest weight is at that relative position, for which it exists. Gold is the
            share of a head's weight on the source words to which gold links connect the target word, of
            target words with links. Untrained models are measured in the same way. {RULE} a head is
            positional with peaks at one neighbour for {POSITIONAL:.0%} of the queries, and aligns with
            {ALIGNING:.0%} of its weight on gold words; entropies differ from {SPREAD} on. {SEEDS}""",
        tables={"heads": Table("Every head of every model.", rows)},
        claims=judge(rows, has_gold=gold is not None),
        figure=draw_panels(
            _panel("Entropy by head, first seed", "share of its maximum", shown, ["entropy"]),
            _panel("Weight by head, first seed", "share of weight", shown, ["previous", "next", "gold"]),
        ),
    )


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
        for head in range(weights.size(1)):
            name = f"{layer} head {head}"
            row: Row = {"head": name, **roles(weights[:, head], queries, batch.src_mask, layer)}
            if not layer.startswith("cross"):
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
        links = link_matrix(gold.links[pair.number].possible, gold.pairs[pair.number].size)
        linked = links.any(1)
        for head, weights in zip(pair.heads, pair.weights, strict=True):
            name = str(head)
            on_gold[name] = on_gold.get(name, 0.0) + float((weights * links)[linked].sum())
            total[name] = total.get(name, 0.0) + float(weights[linked].sum())
    return {name: on_gold[name] / weight for name, weight in total.items() if weight}


def _panel(title: str, y: str, rows: Sequence[Row], names: Sequence[str]) -> Panel:
    """Plot columns by head; NaN where a head has no such figure."""
    places = range(len(rows))
    return Panel(
        title=title,
        x="head",
        y=y,
        lines={name: (places, [row.get(name, float("nan")) for row in rows]) for name in names},
        limits=(0, 1.05),
        ticks=[row["head"].replace(" head ", ".") for row in rows],
    )


def judge(rows: Sequence[Row], *, has_gold: bool) -> list[Claim]:
    """Compare the claims with the heads of each seed."""
    seeds = sorted(set(column(rows, "seed")))

    def by_seed(state: str, side: str, figure: Callable[[list[Row]], float]) -> list[float]:
        """Compute a figure of all heads of a side, for each seed."""
        return [
            figure(
                [
                    row
                    for row in rows
                    if (row["model"], row["seed"]) == (state, seed) and row["head"].startswith(side)
                ]
            )
            for seed in seeds
        ]

    def most_positional(heads: list[Row]) -> float:
        return float(max(column(heads, "previous peak") + column(heads, "next peak")))

    def width(heads: list[Row]) -> float:
        entropies = column(heads, "entropy")
        return float(max(entropies) - min(entropies))

    def most_aligned(heads: list[Row]) -> float:
        return float(max(column(heads, "gold")))

    claims = [
        at_least(
            "A trained encoder has a positional head: largest share of peaks at one neighbour",
            by_seed("trained", "encoder", most_positional),
            POSITIONAL,
        ),
        at_most(
            "An untrained one has none: the same share", by_seed("untrained", "encoder", most_positional), 0.5
        ),
        at_least(
            "Trained encoder heads specialise: highest minus lowest entropy",
            by_seed("trained", "encoder", width),
            SPREAD,
        ),
        at_most("Untrained ones do not: the same difference", by_seed("untrained", "encoder", width), SPREAD),
    ]
    if has_gold:
        claims += [
            at_least(
                "A head of attention to the source aligns words: largest share of weight on gold words",
                by_seed("trained", "cross", most_aligned),
                ALIGNING,
            ),
            at_most(
                "An untrained one does not: the same share",
                by_seed("untrained", "cross", most_aligned),
                ALIGNING,
            ),
        ]
    return claims
