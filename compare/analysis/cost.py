"""Quality against the cost of training: slopes, crossings and time to quality of curves over several budgets.

References:
- Hesterberg 2015, What Teachers Should Know About the Bootstrap. The American Statistician 69(4).
- Holm 1979 and Welch 1947, as in ``statistics``.

k seeds, B budgets, R resamples of the seeds, G costs of a grid.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from compare.analysis.comparison import Comparison, compared_with
from compare.analysis.statistics import (
    ALPHA,
    FloatArray,
    Interval,
    WelchTest,
    holm_correction,
    seed_interval,
    t_quantile,
)
from compare.results.table import describe_p, format_points
from compare.scoring import BOOTSTRAP_SEED


class BudgetScore(NamedTuple):
    """Score of one model and seed at one training budget."""

    label: str
    seed: int
    budget: int
    """Updates."""
    flops: float
    """FLOPs of training: those per token times the tokens seen."""
    score: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Scores of one model by seed and budget, in rising order of the budgets."""

    label: str
    budgets: Sequence[int]
    """Updates, (B,)."""
    costs: FloatArray
    """Binary logarithm of the FLOPs, mean over seeds, (B,); a straight line joins neighbours."""
    scores: FloatArray
    """Score of each seed, (k, B)."""

    @property
    def slopes(self) -> FloatArray:
        """Least-squares slope of each seed: points per doubling of the cost, (k,)."""
        centred = self.costs - self.costs.mean()
        slopes: FloatArray = self.scores @ centred / (centred @ centred)
        return slopes

    @property
    def slope_interval(self) -> Interval | None:
        """95% interval of the mean slope over seeds; None for one seed."""
        return seed_interval(self.slopes.tolist())

    def cost_of(self, score: float) -> float | None:
        """Return the FLOPs at which the mean curve first reaches a score; None if it never does.

        A curve that begins above the score has reached it at its smallest cost, or before.
        """
        means = self.scores.mean(axis=0)
        reached = int(np.argmax(means >= score))
        if means[reached] < score:
            return None
        if not reached:
            return float(2 ** self.costs[0])
        before = slice(reached - 1, reached + 1)
        return float(2 ** np.interp(score, means[before], self.costs[before]))


def make_curves(scores: Iterable[BudgetScore]) -> dict[str, Curve]:
    """Build the curve of each model, of the budgets that all its seeds have reached.

    Raises:
        ValueError: the seeds of a model have fewer than two budgets in common.
    """
    models: dict[str, dict[int, dict[int, BudgetScore]]] = {}
    for each in scores:
        models.setdefault(each.label, {}).setdefault(each.seed, {})[each.budget] = each
    curves = {}
    for label, seeds in models.items():
        budgets = sorted(set.intersection(*map(set, seeds.values())))
        if len(budgets) < 2:
            raise ValueError(f"{label}: its seeds have {len(budgets)} budgets in common; a curve needs two")
        runs = [[by_budget[budget] for budget in budgets] for by_budget in seeds.values()]
        flops = np.array([[each.flops for each in run] for run in runs])
        values = np.array([[each.score for each in run] for run in runs])
        curves[label] = Curve(label=label, budgets=budgets, costs=np.log2(flops).mean(axis=0), scores=values)
    return curves


# Slopes.


class SlopeDifference(NamedTuple):
    """Difference of the slopes of two models, first minus second."""

    first: Curve
    second: Curve
    test: WelchTest
    """Welch's t test over the seeds."""
    p: float
    """Its p-value with Holm's correction for all pairs of the call."""

    def __str__(self) -> str:
        """Describe both slopes and the test in a sentence."""
        gains = [f"{each.label} {each.slopes.mean():.2f} BLEU" for each in (self.first, self.second)]
        low, high = self.test.interval()
        verdict = describe_p(self.p) if self.p < ALPHA else f"{describe_p(self.p)}, not significant"
        return (
            f"Per doubling of the training FLOPs {gains[0]} and {gains[1]} are gained: a difference of "
            f"{self.test.difference:.2f} (95% interval {low:.2f} to {high:.2f}; {verdict})."
        )


def compare_slopes(pairs: Sequence[tuple[Curve, Curve]]) -> list[SlopeDifference]:
    """Test whether the slopes of two models differ, for each of the planned pairs.

    Raises:
        ValueError: a model has one seed, whose slope has no known variance.
    """
    tests = []
    for pair in pairs:
        slopes = [curve.slopes for curve in pair]
        if single := [curve.label for curve in pair if len(curve.scores) < 2]:
            raise ValueError(f"{single[0]} has one seed: slopes are compared over two seeds or more")
        parts = [(float(each.var(ddof=1)) / len(each), len(each) - 1) for each in slopes]
        tests.append(WelchTest.of(float(slopes[0].mean() - slopes[1].mean()), parts))
    corrected = holm_correction([test.p for test in tests])
    return [SlopeDifference(*pair, test, p) for pair, test, p in zip(pairs, tests, corrected, strict=True)]


# Crossings.


class Crossing(NamedTuple):
    """The cost from which one model leads for good, by the means over seeds."""

    leader: str
    """Model that is ahead at the largest cost of both."""
    flops: float
    """Cost of the last crossing of the mean curves; 0 if the leader is ahead throughout."""
    interval: Interval | None
    """95% interval of this cost; 0 is below all budgets, infinity above. None with less than three seeds."""
    several: bool
    """Whether the curves cross more than once."""


def find_crossing(first: Curve, second: Curve, *, resamples: int = 10_000) -> Crossing:
    """Find the last crossing of two mean curves, with a percentile bootstrap interval over seeds.

    The percentiles are the expanded ones of Hesterberg (2015): the bootstrap of few seeds has too small a
    variance.

    Raises:
        ValueError: the models have no range of costs in common.
    """
    low, high = (end(first.costs[index], second.costs[index]) for end, index in ((max, 0), (min, -1)))
    if low >= high:
        raise ValueError(f"{first.label} and {second.label} have no training costs in common")
    grid = np.unique(np.clip(np.concatenate([first.costs, second.costs]), low, high))
    seeds = len(first.scores), len(second.scores)

    def on_grid(curve: Curve) -> FloatArray:
        return np.stack([np.interp(grid, curve.costs, scores) for scores in curve.scores])

    one, other = on_grid(first), on_grid(second)
    lead = one.mean(axis=0) - other.mean(axis=0)
    sign = 1 if lead[-1] > 0 else -1
    crossing = float(2 ** _last_crossing(grid, sign * lead))
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    interval = None
    if (k := min(seeds)) > 2:  # in simulations that of two seeds covers 60%
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
    scores: Iterable[BudgetScore],
    pairs: Sequence[tuple[str, str]],
    comparisons: Mapping[int, Sequence[Comparison]],
) -> list[str]:
    """Describe the curves of planned pairs of models, and the differences of their slopes.

    Args:
        scores: of all models, seeds and budgets.
        pairs: labels of two models each; Holm's correction of the slopes is for these.
        comparisons: of the models by budget, as ``compare_models`` makes them.

    Returns:
        A sentence per pair, then one per pair whose models both have several seeds.
    """
    curves = make_curves(scores)
    sentences = []
    for first, second in pairs:
        verdicts = {budget: compared_with(each, second).get(first) for budget, each in comparisons.items()}
        known = {budget: verdict for budget, verdict in verdicts.items() if verdict is not None}
        sentences.append(describe_curves(curves[first], curves[second], known))
    planned = [(curves[first], curves[second]) for first, second in pairs]
    tested = [pair for pair in planned if min(len(curve.scores) for curve in pair) > 1]
    return [*sentences, *map(str, compare_slopes(tested))]


def describe_curves(first: Curve, second: Curve, verdicts: Mapping[int, Comparison]) -> str:
    """Say who leads at which budgets, and where the curves cross.

    Args:
        first: the curve of a model.
        second: that of another.
        verdicts: comparison of the two by budget; where there is none, no lead is significant.
    """
    budgets = [budget for budget in first.budgets if budget in second.budgets]
    means = [dict(zip(each.budgets, each.scores.mean(axis=0), strict=True)) for each in (first, second)]
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
        span = list(group)
        if is_significant:
            certain.append(f"{leader} {'' if certain else 'leads '}{_describe_span(span, budgets)}")
        else:
            sizes = (format_points(abs(leads[budget])) for budget in span)
            at = f"{leader} is {_ends(sizes)} BLEU ahead {_describe_span(span, budgets)}"
            uncertain.append(f"{at}, which is not significant")
    parts = [" and ".join(certain)] * bool(certain) + uncertain
    crossing = find_crossing(first, second)
    if crossing.flops == 0:
        where = f"by the means {crossing.leader} is ahead throughout"
    elif crossing.flops == math.inf:
        where = "by the means neither is ahead at the end"
    else:
        where = f"the curves cross {'last ' * crossing.several}at {_format_flops(crossing.flops)} FLOPs"
    return f"{'; '.join([*parts, where])}{_describe_interval(crossing.interval)}."


def _describe_span(span: Sequence[int], budgets: Sequence[int]) -> str:
    """Name consecutive budgets among all."""
    if list(span) == list(budgets):
        return f"at all budgets, {budgets[0]:,} to {budgets[-1]:,} updates"
    if len(span) > 1 and span[0] == budgets[0]:
        return f"up to {span[-1]:,} updates"
    if len(span) > 1 and span[-1] == budgets[-1]:
        return f"from {span[0]:,} updates"
    return f"at {_ends(f'{budget:,}' for budget in span)} updates"


def _ends(texts: Iterable[str]) -> str:
    """Join the first and the last of several texts: "1,000 to 4,000"."""
    first, *rest = texts
    return " to ".join([first, *rest[-1:]])


def _describe_interval(interval: Interval | None) -> str:
    if interval is None or interval.low == interval.high:
        return ""
    ends = [_format_flops(end) for end in interval]
    if interval.low == 0:
        ends[0] = "below the smallest budget"
    if interval.high == math.inf:
        ends[1] = "above the largest"
    return f" (95% interval of the crossing {' to '.join(ends)})"


def _format_flops(flops: float) -> str:
    return f"{flops:.1e}".replace("e+", "e")
