"""Positions that carry over to sequences longer than those of training: copying with each kind of position.

Press et al. 2022 (figure 1) report for language models that sinusoids fail just past the lengths of training,
that rotary positions (Su et al. 2021) reach little farther, and that ALiBi does not degrade. Shaw et al. 2018
(section 3.2) clip distances so that relative positions generalise to lengths not seen. The study ``order``
trains sinusoids and learned vectors with one seed; this one compares five kinds with three.
"""

from compare.analysis.tables import Row, Table
from compare.studies.copying import SYMBOLS, WIDTH, Copying
from compare.studies.kit import mean
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from transformer.config import Positions

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


def run(settings: Settings) -> StudyResult:
    """Train every kind with every seed and measure copies of all lengths."""
    copying = Copying.of(settings, (0.25, 0.5, 1, 1.1, 1.25, 1.5, 2))
    by_seed = [copying.measure(KINDS, seed) for seed in settings.seeds]
    means = average(by_seed)
    every = [
        {"seed": seed, **row} for seed, rows in zip(settings.seeds, by_seed, strict=True) for row in rows
    ]
    return StudyResult(
        method=f"""
            Transformers of two layers per side (d = {WIDTH}, 4 heads) learn to copy sequences of 1 to
            {copying.longest} of {SYMBOLS} symbols ({copying.updates:,} updates of about {copying.tokens:,}
            tokens, fp32), with each kind of position and {len(by_seed)} seeds; with the same seed all see the
            same batches. Rotary, relative and ALiBi positions act in self-attention only, so attention to the
            source knows places through the states alone. Accuracy is the share of tokens that are the
            likeliest after the reference before them, over {copying.tests} new sequences per length; past: of
            the symbols after number {copying.longest}. Chance is {1 / SYMBOLS:.2f}. Each claim is tested for
            every seed. The rule was fixed before, at 1.5 times the longest length: a kind carries over with
            {GOOD} of those symbols right, and fails with at most {BAD}. Hold means with all seeds; undecided:
            with some.""",
        tables={
            "lengths": Table(
                "Mean accuracy by length; past: over the symbols beyond the longest sequence of training.",
                means,
            ),
            "seeds": Table("The same for each seed.", every),
        },
        claims=judge(by_seed, copying),
        figure=copying.plot(means, KINDS, ", mean over seeds"),
    )


def average(by_seed: list[list[Row]]) -> list[Row]:
    """Average the accuracies of each length over seeds."""
    return [
        rows[0] | {name: mean([row[name] for row in rows]) for name in rows[0] if name != "length"}
        for rows in zip(*by_seed, strict=True)
    ]


def judge(by_seed: list[list[Row]], copying: Copying) -> list[Claim]:
    """Compare the claims with the accuracies of each seed."""
    half = [copying.beyond(rows) for rows in by_seed]
    past = f"accuracy after symbol {copying.longest} of sequences of {half[0]['length']}"
    return [
        *(
            at_least(
                f"{kind} positions: training lengths are learned: least accuracy",
                [copying.learned(rows, kind) for rows in by_seed],
                0.99,
            )
            for kind in KINDS
        ),
        *(
            at_least(
                f"{subject} carry over to longer sequences: {past}",
                [row[f"{kind}_past"] for row in half],
                GOOD,
            )
            for kind, subject in CARRIES_OVER.items()
        ),
        *(
            at_most(f"{subject} do not: {past}", [row[f"{kind}_past"] for row in half], BAD)
            for kind, subject in FAILS.items()
        ),
    ]
