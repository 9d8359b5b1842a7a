"""Attention heads: what those of a Transformer specialise in, and what two can do that one cannot.

**heads-average.** Vaswani et al. 2017 (section 3.2.2): several heads attend to different positions, and "with
a single attention head, averaging inhibits this". The task makes it exact: name the symbols at two places, in
their order, from one attention whose weights depend on the places alone, with a linear layer per answer.

Why one head cannot. For fixed places and other symbols, the logits are linear in p v_a + (1 - p) v_b. With p
= 1/2 they are the same for (a, b) and (b, a), and one of them is answered wrong. Let p > 1/2 (else exchange
the answers), and let A[y, x] be the logit of y as the second answer for v_x, all constants included. Suppose
that both orders of all pairs of three symbols are right. The inequalities that say so are linear in A and
stay true if the symbols are exchanged, so they hold for the mean over all exchanges too, which has one value
s on its diagonal and another, t, elsewhere. For (a, b), b beats a: p t + (1 - p) s > p s + (1 - p) t, so s <
t. It also beats the third symbol: p t + (1 - p) s > t, so s > t, a contradiction. The pairs with both orders
right thus form a graph without triangles, which has at most n^2 / 4 of the n (n - 1) / 2 pairs of n symbols
(Mantel 1907); of any other pair at most one order is right.

Shapes: B sentences or examples, H heads, T queries, S keys, N symbols, D width.
"""

import logging
from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compare.analysis.alignment import attend_words
from compare.analysis.word_links import Gold, corpus_gold, link_matrix
from compare.attention.weights import AttentionHead
from compare.decoding.translator import Translator
from compare.models.registry import build as build_model
from compare.models.styles import TRANSFORMER
from compare.results.table import Row
from compare.studies.experiments import batch_of, obtain_translators
from compare.studies.panels import column, conclude
from compare.studies.study import Measured, Settings, StudyResult
from data.corpus import Corpus, Pairs
from transformer.attention import plain_attention
from transformer.multihead import split_heads

logger = logging.getLogger(__name__)

# Roles of the heads of a Transformer.


OFFSETS = {"previous": -1, "itself": 0, "next": 1}


def roles(settings: Settings) -> StudyResult:
    """Measure the heads of trained models, or of a finished experiment, and of untrained ones."""
    method, models, corpus = obtain_translators(settings, [TRANSFORMER])
    test = Pairs(*(part[: 5 if settings.quick else 100] for part in corpus.splits[corpus.tests[0]]))
    gold = _gold(test)
    rows: list[Row] = []
    for seed, translator in models[TRANSFORMER].items():
        logger.info(f"head-roles: measuring the model of seed {seed}")
        torch.manual_seed(settings.seed + seed)
        for state, model in (("trained", translator), ("untrained", untrained(translator))):
            rows += [{"model": state, "seed": seed, **row} for row in measure_heads(model, test, gold)]
    shown: list[Row] = [
        {**row, "head": row["head"].replace("layer ", "").replace(", head ", ".")}
        for row in rows
        if (row["model"], row["seed"]) == ("trained", min(models[TRANSFORMER]))
    ]
    tables = {"heads": rows, "shown": shown}
    return conclude(settings, tables, role_series(rows), origin=method, tests=len(test.src))


def untrained(translator: Translator) -> Translator:
    """Make the same model with fresh weights."""
    src, tgt = translator.vocabularies
    model = build_model(translator.model.config, len(src), len(tgt))
    return Translator(model, translator.vocabularies, translator.decode, translator.device)


def _gold(test: Pairs) -> Gold | None:
    if not test.links:
        return None
    return corpus_gold(Corpus(name="test", src_lang="", tgt_lang="", splits={"test": test}), "test")


def measure_heads(translator: Translator, test: Pairs, gold: Gold | None) -> list[Row]:
    """Measure every head of a model: one row per head."""
    batch = batch_of(translator, test)
    with torch.inference_mode():
        attention = translator.model.eval().attention(batch.src, batch.src_mask, batch.tgt_in)
    shares = {} if gold is None else gold_shares(translator, gold)
    rows: list[Row] = []
    for layer, weights in attention.items():
        queries = batch.src_mask if layer.startswith("encoder") else batch.tgt_mask
        for head in range(weights.size(1)):
            name = str(AttentionHead(layer, head))
            row: Row = {"head": name, **concentration(weights[:, head], queries, batch.src_mask, layer)}
            if not layer.startswith("cross"):
                row |= offsets(weights[:, head], queries)
            elif name in shares:
                row["gold"] = shares[name]
            rows.append(row)
    return rows


def concentration(weights: Tensor, queries: Tensor, src_mask: Tensor, layer: str) -> Row:
    """Compute entropy and distance of a head of a layer, from (B, T, S) for real queries (B, T).

    ``src_mask`` (B, S') is True at real source tokens; S' is S unless a decoder attends to itself.
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


def role_series(rows: Sequence[Row]) -> dict[str, Measured]:
    """Compute what the claims are about, per seed; of alignment only where there is gold."""
    series: dict[str, list[float]] = {}
    for state, suffix in (("trained", ""), ("untrained", "_untrained")):
        for seed in sorted(set(column(rows, "seed"))):
            heads = [row for row in rows if (row["model"], row["seed"]) == (state, seed)]
            encoder = [row for row in heads if row["head"].startswith("encoder")]
            entropies, gold = column(encoder, "entropy"), [row["gold"] for row in heads if "gold" in row]
            peaks = [max(row["previous peak"], row["next peak"]) for row in encoder]
            series.setdefault(f"positional{suffix}", []).append(max(peaks))
            series.setdefault(f"spread{suffix}", []).append(max(entropies) - min(entropies))
            if gold:
                series.setdefault(f"aligning{suffix}", []).append(max(gold))
    return dict(series)


# One head against two.


LENGTH, SYMBOLS = 8, 12
FREE = SYMBOLS - LENGTH + 2
"""Symbols that can stand at the two places if the other places are given, n."""
BOUND = 0.5 + (FREE**2 // 4) / (FREE * (FREE - 1))
"""Largest share of ordered pairs that one head can name."""
MARGIN = 0.02
"""Three standard errors of a share of 4,000 examples."""


class Lookup(nn.Module):
    """Attention that reads two symbols: logits (B, 2, N) = W_answer attention(positions, sequence)."""

    def __init__(self, num_heads: int, d: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.values, self.keys = nn.Embedding(SYMBOLS, d), nn.Embedding(LENGTH, d)
        self.first, self.second = nn.Embedding(LENGTH, d), nn.Embedding(LENGTH, d)
        self.project_query, self.project_key, self.project_value = (nn.Linear(d, d) for _ in range(3))
        self.answers = nn.Linear(d, 2 * SYMBOLS)

    def forward(self, symbols: Tensor, positions: Tensor) -> Tensor:
        """Read symbols (B, S) at positions (B, 2)."""
        query = self.first(positions[:, :1]) + self.second(positions[:, 1:])  # (B, 1, D)
        queries, keys, values = (
            split_heads(part, self.num_heads)
            for part in (
                self.project_query(query),
                self.project_key(self.keys.weight).expand(len(symbols), -1, -1),
                self.project_value(self.values(symbols)),
            )
        )
        contexts, _ = plain_attention(queries, keys, values, None, False, 0.0)  # (B, H, 1, D / H)
        logits: Tensor = self.answers(contexts.flatten(1))
        return logits.view(-1, 2, SYMBOLS)


def average(settings: Settings) -> StudyResult:
    """Measure the mean of two values, and train one, two and four heads."""
    d, updates, batch, tests = (16, 3, 16, 50) if settings.quick else (64, 2_000, 128, 4_000)
    heads = [1, 2] if settings.quick else [1, 2, 4]
    rows: list[Row] = []
    for num_heads in heads:
        for seed in settings.seeds:
            row = {"heads": num_heads, "seed": seed, **train(num_heads, d, updates, batch, tests, seed)}
            logger.info(f"heads-average: heads {num_heads}, seed {seed}: ordered {row['ordered']:.3f}")
            rows.append(row)
    chance = 1 / (SYMBOLS * (SYMBOLS - 1))
    means: list[Row] = [
        {"heads": count, "measured": fmean(column(rows, "ordered", heads=count))} for count in heads
    ]
    return conclude(
        settings,
        {"accuracy": rows, "means": means},
        {str(count): column(rows, "ordered", heads=count) for count in heads},
        **{"length": LENGTH, "symbols": SYMBOLS, "bound": BOUND, "bound_with_errors": BOUND + MARGIN},
        **{"chance": chance, "heads": ", ".join(map(str, heads)), "d": d, "seed_count": len(settings.seeds)},
        **{"updates": updates, "batch": batch, "tests": tests},
    )


def examples(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw symbols (B, S), two different positions (B, 2) and their symbols in order (B, 2)."""
    symbols = torch.rand(count, SYMBOLS).argsort(1)[:, :LENGTH]
    positions = torch.rand(count, LENGTH).argsort(1)[:, :2]
    return symbols, positions, symbols.gather(1, positions)


def train(num_heads: int, d: int, updates: int, batch: int, tests: int, seed: int) -> Row:
    """Train one model and measure it on new examples."""
    torch.manual_seed(seed)
    model = Lookup(num_heads, d)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(updates):
        symbols, positions, answers = examples(batch)
        loss = F.cross_entropy(model(symbols, positions).flatten(0, 1), answers.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    symbols, positions, answers = examples(tests)
    with torch.inference_mode():
        return count_right(model(symbols, positions).argmax(-1), answers)


def count_right(named: Tensor, answers: Tensor) -> Row:
    """Compute the shares of pairs ordered right and found, from named and right symbols (B, 2)."""
    ordered = (named == answers).all(1)
    as_sets = (named.sort(1).values == answers.sort(1).values).all(1)
    return {"ordered": float(ordered.float().mean()), "found": float(as_sets.float().mean())}
