"""Quality against the cost of training: points, curves, slopes, crossings and time to quality.

The points of an experiment with several budgets are its results; with one budget they are its validations. k
seeds, B budgets or validations, R resamples of the seeds, G costs of a grid.

Hesterberg 2015: What Teachers Should Know About the Bootstrap. The American Statistician 69(4).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from compare.analysis.comparison import Comparison, compared_with
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.statistics import (
    ALPHA,
    FloatArray,
    Interval,
    WelchTest,
    holm_correction,
    seed_interval,
    t_quantile,
)
from compare.results.formatting import Column, Row, Table, describe_p, format_points, plain_column
from compare.scoring import BOOTSTRAP_SEED
from compare.training.log import read_metrics

# Points: quality of a run, with the training that it took.


COSTS = {
    "updates": "updates",
    "minutes": "minutes of training",
    "tokens": "training tokens of source and target",
    "flops": "training FLOPs",
    "joules": "joules of training",
}
"""Training costs: columns of ``cost_points`` and their names in text."""
QUALITIES = {"bleu": "highest BLEU", "loss": "lowest validation loss"}
"""Columns of ``cost_points``, and the names of their optimum."""
NO_BLEU = "language models have no BLEU; see the perplexities in the tables"
BELOW_BEST = (6, 4, 2)
"""Points below the best BLEU, rounded down, at which ``time_to_quality`` has its levels."""


def cost_points(finished: FinishedExperiment) -> Table:
    """List quality and training cost by result of several budgets, or else by validation."""
    if len(finished.budgets) < 2:
        return progress(finished)
    experiments = map(finished.at_budget, finished.budgets)
    rows = [_result_row(experiment, run) for experiment in experiments for run in experiment.trained.runs]
    return Table(f"BLEU of {finished.outcome_name} at each budget.", rows)


def progress(finished: FinishedExperiment) -> Table:
    """List validation loss and BLEU with the training cost so far, by run and validation.

    FLOPs and joules are those per token of the result times the tokens of both sides.
    """
    rows = [row for run in finished.trained.runs for row in _validation_rows(run)]
    return Table("Validation (greedy search) during training; the minutes exclude validation itself.", rows)


def _validation_rows(run: FinishedRun) -> list[Row]:
    lines = read_metrics(run.metrics)
    train_lines, valid_lines = (
        [line for line in lines if line["kind"] == kind] for kind in ("train", "valid")
    )
    rows = []
    for line in valid_lines:
        earlier = [train_line for train_line in train_lines if train_line["update"] <= line["update"]]
        tokens = sum(train_line["src_tokens"] + train_line["tgt_tokens"] for train_line in earlier)
        costs = _costs(run, line["update"], line["seconds"], tokens)
        rows.append({**run.names, **costs, "loss": line["loss"], "bleu": line["bleu"]})
    return rows


def _result_row(finished: FinishedExperiment, run: FinishedRun) -> Row:
    result = run.result
    seconds = (result.train_s or 0.0) + (result.data_s or 0.0)
    costs = _costs(run, result.budget or 0, seconds, result.tokens_seen or 0)
    quality = {"loss": result.valid_loss, "bleu": finished.outcome_bleu(result)}
    against = [second for first, second in finished.planned_pairs if first == result.label]
    return {**run.names, **costs, **quality, "outcome": finished.outcome_name, "against": against}


def _costs(run: FinishedRun, updates: int, seconds: float, tokens: int) -> Row:
    flops, energy = run.result.train_flops_per_token, run.result.energy_j_per_1k_tokens
    return {
        "updates": updates,
        "minutes": seconds / 60,
        "tokens": tokens,
        "flops": None if flops is None else flops * tokens,
        "joules": None if energy is None else energy * tokens / 1000,
    }


# Curves: the points of one model.


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Scores of one model by seed and rising training cost."""

    label: str
    updates: Sequence[int]
    costs: FloatArray
    """Mean cost over seeds, (B,); the curve is linear in its logarithm."""
    scores: FloatArray
    """Score of each seed, (k, B)."""

    @property
    def doublings(self) -> FloatArray:
        """Binary logarithms of the costs, (B,)."""
        logarithms: FloatArray = np.log2(self.costs)
        return logarithms

    @property
    def means(self) -> FloatArray:
        """Mean scores over seeds, (B,)."""
        means: FloatArray = self.scores.mean(axis=0)
        return means

    @property
    def slopes(self) -> FloatArray:
        """Least-squares slope of each seed, in points per doubling of the cost, (k,)."""
        centred = self.doublings - self.doublings.mean()
        slopes: FloatArray = self.scores @ centred / (centred @ centred)
        return slopes

    @property
    def slope_interval(self) -> Interval | None:
        """95% interval of the mean slope over seeds; None for one seed."""
        return seed_interval(self.slopes.tolist())

    def score_at(self, cost: float) -> float:
        """Return the mean score at a cost."""
        return float(np.interp(math.log2(cost), self.doublings, self.means))

    def cost_of(self, score: float) -> float | None:
        """Return the cost at which the mean curve first reaches a score; None if it never does."""
        reached = int(np.argmax(self.means >= score))
        if self.means[reached] < score:
            return None
        if not reached:
            return float(self.costs[0])
        before = slice(reached - 1, reached + 1)
        return float(2 ** np.interp(score, self.means[before], self.doublings[before]))


def make_curves(points: Iterable[Row], quality: str = "bleu", cost: str = "flops") -> dict[str, Curve]:
    """Build the curve of each model over the updates that all its seeds have reached."""
    models: dict[str, dict[int, dict[int, Row]]] = {}
    for point in points:
        if point[quality] is not None and point[cost] is not None:
            runs = models.setdefault(point["label"], {})
            runs.setdefault(point["seed"], {})[point["updates"]] = point
    curves = {}
    for label, seeds in models.items():
        updates = sorted(set.intersection(*map(set, seeds.values())))
        costs, scores = (
            np.array([[float(run[update][name]) for update in updates] for run in seeds.values()])
            for name in (cost, quality)
        )
        curves[label] = Curve(label=label, updates=updates, costs=costs.mean(axis=0), scores=scores)
    return curves


def time_to_quality(points: Sequence[Row], levels: Sequence[int] = ()) -> Table:
    """List when the mean curve of each model first reaches levels of BLEU, by default ``BELOW_BEST``.

    Raises ValueError if the runs have no BLEU.
    """
    if any(point["bleu"] is None for point in points):
        raise ValueError(NO_BLEU)
    by_cost = {cost: make_curves(points, "bleu", cost) for cost in ("minutes", "updates")}
    best = max(curve.means.max() for curve in by_cost["updates"].values())
    levels = levels or [level for below in BELOW_BEST if (level := math.floor(best) - below) > 0]
    rows: list[Row] = []
    for label in by_cost["updates"]:
        costs = {name: [curves[label].cost_of(level) for level in levels] for name, curves in by_cost.items()}
        row: Row = {"label": label}
        for level, minutes, updates in zip(levels, *costs.values(), strict=True):
            row[f"minutes_to_{level}"] = minutes
            row[f"updates_to_{level}"] = None if updates is None else round(updates)
        rows.append(row)
    caption = (
        f"Training until the mean over seeds first reaches a BLEU of {', '.join(map(str, levels))}, "
        f"interpolated between validations, whose time does not count. The best BLEU of all is {best:.1f}. "
        "A dash: never reached."
    )
    return Table(caption, rows, "Time to quality")


def budget_table(points: Sequence[Row]) -> Table:
    """List the BLEU of each model at each of several budgets, and its slope over all."""
    budgets = sorted({point["updates"] for point in points})
    rows: list[Row] = []
    for label, curve in make_curves(points).items():
        row: Row = {"label": label, "seeds": len(curve.scores)}
        for budget, scores in zip(curve.updates, curve.scores.T, strict=True):
            row[str(budget)] = float(scores.mean())
            row[f"{budget}_sd"] = float(scores.std(ddof=1)) if len(scores) > 1 else None
        if len(curve.updates) > 1:
            low, high = curve.slope_interval or (None, None)
            row |= {"slope": float(curve.slopes.mean()), "slope_low": low, "slope_high": high}
        rows.append(row)
    columns = [Column(str(budget), f"{budget:,} updates", decimals=1) for budget in budgets]
    slope = Column("slope", "BLEU per doubling of FLOPs", decimals=2)
    interval = Column("slope_low", "95% interval", ends=[("slope_low", "slope_high")], decimals=2)
    layout = [Column("label", "model", left=True), plain_column("seeds"), *columns, slope, interval]
    outcome = next((point["outcome"] for point in points), "")
    caption = f"BLEU ({outcome}), means over seeds ± standard deviation. A dash: a seed lacks this budget."
    return Table(caption, rows, "BLEU by training budget", layout=layout)


# Slopes.


class SlopeDifference(NamedTuple):
    """Difference of the slopes of two models, first minus second."""

    first: Curve
    second: Curve
    test: WelchTest
    p: float
    """p-value with Holm's correction for all pairs of the call."""

    def __str__(self) -> str:
        gains = [f"{curve.slopes.mean():.2f} BLEU to {curve.label}" for curve in (self.first, self.second)]
        low, high = self.test.interval()
        verdict = describe_p(self.p) if self.p < ALPHA else f"{describe_p(self.p)}, not significant"
        return (
            f"Each doubling of the training FLOPs adds {gains[0]} and {gains[1]}: a difference of "
            f"{self.test.difference:z.2f} (95% interval {low:z.2f} to {high:z.2f}; {verdict})."
        )


def compare_slopes(pairs: Sequence[tuple[Curve, Curve]]) -> list[SlopeDifference]:
    """Test whether the slopes of planned pairs differ; ValueError for a model with one seed."""
    tests = []
    for pair in pairs:
        slopes = [curve.slopes for curve in pair]
        if single := [curve.label for curve in pair if len(curve.scores) < 2]:
            raise ValueError(f"{single[0]} has one seed; comparing slopes needs two or more")
        parts = [
            (float(model_slopes.var(ddof=1)) / len(model_slopes), len(model_slopes) - 1)
            for model_slopes in slopes
        ]
        tests.append(WelchTest.of(float(slopes[0].mean() - slopes[1].mean()), parts))
    corrected = holm_correction([test.p for test in tests])
    return [SlopeDifference(*pair, test, p) for pair, test, p in zip(pairs, tests, corrected, strict=True)]


# Crossings.


class Crossing(NamedTuple):
    """The cost from which one model leads for good, by the means over seeds."""

    leader: str
    """Model that is ahead at the largest common cost."""
    cost: float
    """Cost of the last crossing of the means; 0 if the leader is ahead throughout."""
    interval: Interval | None
    """95% interval, from 0 (below all budgets) to infinity; None with less than three seeds."""
    several: bool

    def describe_interval(self) -> str:
        """Format the interval; empty if there is none."""
        if self.interval is None or self.interval.low == self.interval.high:
            return ""
        low, high = (format_cost(end) for end in self.interval)
        low = "below the smallest budget" if self.interval.low == 0 else low
        return f"{low} to {'above the largest' if self.interval.high == math.inf else high}"

    @property
    def is_inside(self) -> bool:
        """True if the mean curves cross at a common cost."""
        return 0 < self.cost < math.inf


def find_crossing(first: Curve, second: Curve, *, resamples: int = 10_000) -> Crossing:
    """Find the last crossing of two mean curves, with a percentile bootstrap interval over seeds.

    Percentiles are expanded as by Hesterberg (2015), because the bootstrap of few seeds has too small a
    variance. Raises ValueError if the models have no range of costs in common.
    """
    grid = _common_grid(first, second)
    if len(grid) < 2:
        raise ValueError(f"{first.label} and {second.label} have no training costs in common")
    seeds = len(first.scores), len(second.scores)

    def on_grid(curve: Curve) -> FloatArray:
        return np.stack([np.interp(grid, curve.doublings, scores) for scores in curve.scores])

    one, other = on_grid(first), on_grid(second)
    lead = one.mean(axis=0) - other.mean(axis=0)
    sign = 1 if lead[-1] > 0 else -1
    crossing = float(2 ** _last_crossing(grid, sign * lead))
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    interval = None
    if (k := min(seeds)) > 2:  # the interval of two seeds covers 60% in simulations
        draws = [
            values[rng.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
            for values in (one, other)
        ]
        costs = np.sort(_last_crossing(grid, sign * (draws[0] - draws[1])))
        tail = ndtr(-math.sqrt(k / (k - 1)) * t_quantile(k - 1))
        rank = int(tail * (resamples - 1))
        interval = Interval(*(float(2**cost) for cost in (costs[rank], costs[-1 - rank])))
    changes = int(np.count_nonzero(np.diff(np.sign(lead[lead != 0]))))
    return Crossing((first if sign > 0 else second).label, crossing, interval, changes > 1)


def _common_grid(*curves: Curve) -> FloatArray:
    """Return the binary logarithms of all costs in the common range, (G,)."""
    low, high = (end(curve.doublings[i] for curve in curves) for end, i in ((max, 0), (min, -1)))
    grid = np.concatenate([curve.doublings for curve in curves])
    return np.unique(np.clip(grid, low, high)) if low < high else grid[:0]


def _last_crossing(grid: FloatArray, lead: FloatArray) -> Any:
    """Return where ``lead``, (..., G), becomes positive for good; -inf if it is so throughout, else inf."""
    behind = lead <= 0
    last = len(grid) - 1 - np.argmax(behind[..., ::-1], axis=-1)  # the last cost without a lead
    left = np.minimum(last, len(grid) - 2)
    before, after = (np.take_along_axis(lead, (left + step)[..., None], -1)[..., 0] for step in (0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = grid[left] + (grid[left + 1] - grid[left]) * before / (before - after)
    inside = np.where(last == len(grid) - 1, np.inf, inside)
    return np.where(behind.any(axis=-1), inside, -np.inf)


# The outcome over budgets in sentences.


def describe_costs(
    curves: Mapping[str, Curve],
    pairs: Sequence[tuple[str, str]],
    comparisons: Mapping[int, Sequence[Comparison]],
) -> list[str]:
    """Describe the curves of planned pairs of models, then the differences of their slopes.

    Holm's correction covers the pairs; ``comparisons`` are by budget. Raises ValueError if a model has fewer
    than two budgets.
    """
    for label, curve in curves.items():
        if (number := len(curve.updates)) < 2:
            raise ValueError(f"{label}: its seeds share {number} budgets, but a curve needs two")
    sentences = []
    for first, second in pairs:
        verdicts = {budget: compared_with(pairs, second).get(first) for budget, pairs in comparisons.items()}
        made = {budget: verdict for budget, verdict in verdicts.items() if verdict is not None}
        sentences.append(describe_curves(curves[first], curves[second], made))
    planned = [(curves[first], curves[second]) for first, second in pairs]
    tested = [pair for pair in planned if min(len(curve.scores) for curve in pair) > 1]
    return [*sentences, *map(str, compare_slopes(tested))]


def describe_curves(first: Curve, second: Curve, verdicts: Mapping[int, Comparison]) -> str:
    """Say who leads at which budgets, and where the curves cross; ``verdicts`` are by budget."""
    budgets = [budget for budget in first.updates if budget in second.updates]
    means = [dict(zip(curve.updates, curve.means, strict=True)) for curve in (first, second)]
    leads = {budget: float(means[0][budget] - means[1][budget]) for budget in budgets}
    groups = groupby(
        budgets,
        lambda budget: (
            (first if leads[budget] > 0 else second).label,
            budget in verdicts and verdicts[budget].kind == "decided",
        ),
    )
    certain: list[str] = []
    uncertain: list[str] = []
    for (leader, is_significant), group in groups:
        span, other = list(group), (second if leader == first.label else first).label
        if is_significant:
            certain.append(f"{leader} leads {other} {_describe_span(span, budgets)}")
        else:
            sizes = (format_points(abs(leads[budget])) for budget in span)
            at = f"{leader} is {_ends(sizes)} BLEU ahead of {other} {_describe_span(span, budgets)}"
            uncertain.append(f"{at}, which is not significant")
    parts = [" and ".join(certain)] * bool(certain) + uncertain
    crossing = find_crossing(first, second)
    if crossing.cost == 0:
        where = f"on average {crossing.leader} is ahead throughout"
    elif crossing.cost == math.inf:
        where = "on average neither is ahead at the end"
    else:
        where = f"the curves cross {'last ' * crossing.several}at {format_cost(crossing.cost)} FLOPs"
    interval = crossing.describe_interval()
    return f"{'; '.join([*parts, where])}{f' (95% interval of the crossing {interval})' * bool(interval)}."


def _describe_span(span: Sequence[int], budgets: Sequence[int]) -> str:
    if list(span) == list(budgets):
        return f"at all budgets, {budgets[0]:,} to {budgets[-1]:,} updates"
    if len(span) > 1 and span[0] == budgets[0]:
        return f"up to {span[-1]:,} updates"
    if len(span) > 1 and span[-1] == budgets[-1]:
        return f"from {span[0]:,} updates"
    return f"at {_ends(f'{budget:,}' for budget in span)} updates"


def _ends(texts: Iterable[str]) -> str:
    first, *rest = texts
    return " to ".join([first, *rest[-1:]])


def format_cost(cost: float) -> str:
    """Format a cost with two digits: "2,300" or "2.9e14"."""
    large = f"{cost:.1e}".replace("e+0", "e").replace("e+", "e")
    return large if cost >= 1e6 else f"{float(f'{cost:.2g}'):,g}"


def name_leaders(curves: Mapping[str, Curve], quality: str, cost: str) -> str:
    """Say which model is best at which cost, by the means over seeds; empty without two curves."""
    long = [curve for curve in curves.values() if len(curve.updates) > 1]
    grid = _common_grid(*long) if len(long) > 1 else ()
    leaders = [max(long, key=lambda curve: curve.score_at(2**doubling)).label for doubling in grid]
    first, *others = (label for label, _ in groupby(leaders)) if leaders else ("",)
    best = QUALITIES[quality]
    if not others:
        return f"{first} has the {best} at every training cost" if first else ""
    if len(others) == 1 and (crossing := find_crossing(curves[first], curves[others[0]])).is_inside:
        where = f"{format_cost(crossing.cost)} {COSTS[cost]}"
        return f"{first} has the {best} up to {where}, {others[0]} beyond"
    return f"{first} has the {best} at the lowest training cost, {others[-1]} at the highest"
