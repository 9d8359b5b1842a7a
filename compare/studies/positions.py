"""Positions that carry over to sequences longer than those of training: copying with each kind of position.

Press et al. 2022 (figure 1) report for language models that sinusoids fail just past the lengths of training,
that rotary positions (Su et al. 2021) reach little farther, and that ALiBi does not degrade. Shaw et al. 2018
(section 3.2) clip distances so that relative positions generalise to lengths not seen. The study ``order``
trains sinusoids and learned vectors with one seed; this one compares five kinds with three.
"""

import logging

from compare.analysis.tables import Row, Table
from compare.studies.copying import CONFIG, SYMBOLS, learn_to_copy, plot_copying, probe_copying
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from transformer.config import Positions

logger = logging.getLogger(__name__)

CARRIES_OVER: dict[Positions, str] = {
    "rotary": "Rotary positions",
    "relative": "Relative positions",
    "alibi": "Biases of ALiBi",
}
"""Kinds that are said to carry over, with the subject of a claim."""
FAILS: dict[Positions, str] = {"sinusoidal": "Sinusoids", "learned": "Learned positions"}
"""Kinds that are expected to fail past the lengths of training."""
KINDS: tuple[Positions, ...] = (*FAILS, *CARRIES_OVER)
GOOD, BAD = 0.9, 0.5
"""Accuracies from which on a kind carries over, and up to which it fails."""
METHOD = """\
Transformers of two layers per side (d = {d}, 4 heads) learn to copy sequences of 1 to {longest} of {symbols}
symbols ({updates:,} updates of about {tokens:,} tokens, fp32), with each kind of position and {seeds} seeds;
with the same seed all see the same batches. Rotary, relative and ALiBi positions act in self-attention only,
so attention to the source knows places through the states alone. Accuracy is the share of tokens that are the
likeliest after the reference before them, over {tests} new sequences per length; past: of the symbols after
number {longest}. Chance is {chance:.2f}. Each claim is tested for every seed. The rule was fixed before, at
1.5 times the longest length: a kind carries over with {good} of those symbols right, and fails with at most
{bad}. Hold means with all seeds; undecided: with some."""


def run(settings: Settings) -> StudyResult:
    """Train every kind with every seed and measure copies of all lengths."""
    longest, updates, tokens, tests = (4, 2, 64, 5) if settings.quick else (20, 1_000, 1_024, 200)
    seeds = [settings.seed + n for n in range(2 if settings.quick else 3)]
    lengths = sorted({max(1, round(longest * share)) for share in (0.25, 0.5, 1, 1.1, 1.25, 1.5, 2)})
    by_seed: list[list[Row]] = []
    for seed in seeds:
        rows: list[Row] = [{"seed": seed, "length": length} for length in lengths]
        for kind in KINDS:
            logger.info(f"positions: {kind}, seed {seed}, {updates:,} updates")
            model = learn_to_copy(kind, longest, updates, tokens, seed)
            for row in rows:
                row |= probe_copying(model, kind, row["length"], longest, tests, seed)
        by_seed.append(rows)
    means = average(by_seed)
    method = METHOD.format(
        d=CONFIG.d_model,
        longest=longest,
        symbols=SYMBOLS,
        updates=updates,
        tokens=tokens,
        seeds=len(seeds),
        tests=tests,
        chance=1 / SYMBOLS,
        good=GOOD,
        bad=BAD,
    )
    return StudyResult(
        method=method,
        tables={
            "lengths": Table(
                "Mean accuracy by length; past: over the symbols beyond the longest sequence of training.",
                means,
            ),
            "seeds": Table("The same for each seed.", [row for rows in by_seed for row in rows]),
        },
        claims=judge(by_seed, longest),
        figure=plot_copying(means, KINDS, longest, ", mean over seeds"),
    )


def average(by_seed: list[list[Row]]) -> list[Row]:
    """Average the accuracies of each length over seeds."""
    return [
        {"length": rows[0]["length"]}
        | {
            name: sum(row[name] for row in rows) / len(rows)
            for name in rows[0]
            if name not in ("seed", "length")
        }
        for rows in zip(*by_seed, strict=True)
    ]


def judge(by_seed: list[list[Row]], longest: int) -> list[Claim]:
    """Compare the claims with the accuracies of each seed."""
    half = [next(row for row in rows if row["length"] >= 1.5 * longest) for rows in by_seed]
    past = f"accuracy after symbol {longest} of sequences of {half[0]['length']}"
    within = {
        kind: [min(row[kind] for row in rows if row["length"] <= longest) for rows in by_seed]
        for kind in KINDS
    }
    claims = [
        at_least(f"{kind} positions: training lengths are learned: least accuracy", values, 0.99)
        for kind, values in within.items()
    ]
    claims += [
        at_least(
            f"{subject} carry over to longer sequences: {past}", [row[f"{kind}_past"] for row in half], GOOD
        )
        for kind, subject in CARRIES_OVER.items()
    ]
    claims += [
        at_most(f"{subject} do not: {past}", [row[f"{kind}_past"] for row in half], BAD)
        for kind, subject in FAILS.items()
    ]
    return claims
