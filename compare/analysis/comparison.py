"""Comparison of models: significant differences, power, and the main outcome in sentences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Literal

from compare.analysis.finished_experiment import (
    FinishedExperiment,
    FinishedRun,
    are_timed_together,
    load_finished,
    timed_spread,
)
from compare.analysis.statistics import (
    ALPHA,
    Interval,
    ScoredTestSet,
    aggregate_seeds,
    check_label,
    holm_correction,
    score_tests,
    welch_test,
)
from compare.results.store import NO_INTERVALS, Summary, results_hash
from compare.results.table import DISTURBED, describe_p, format_points
from compare.system.messages import explain

# The rule by which one model beats another.
#
# k seeds of a model, N sentences, R resamples of the test set.


ALIKE = 1.0
"""Two models are alike if the 95% interval of their difference lies within this many BLEU of 0."""
Kind = Literal["failed", "decided", "one seed", "alike", "open"]
"""Outcome of a comparison: runs failed, one model beats the other, would beat it if a model had more than one
seed, both are alike, or no difference is shown."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of model ``first`` with model ``second`` by BLEU on the first test set.

    One model beats the other if ``p`` is below ``ALPHA``. Where a run of either model failed, none beats the
    other: the seeds that are left are not any seeds, but those with which training went well.
    """

    first: str
    second: str
    seeds: tuple[int, int]
    """Number of seeds of each model."""
    difference: float
    """Mean score of first minus mean score of second."""
    interval: Interval
    """95% confidence interval of the difference, of the same test as the p-value, without correction."""
    p_alone: float
    """p-value of this comparison alone."""
    p: float
    """``p_alone`` with Holm's correction for all comparisons made together with this one."""
    smallest: float
    """Smallest true difference that would be found with a probability of ``POWER``, at the correction's first
    step, which is its strictest."""
    failed: tuple[str, ...] = ()
    """Runs of either model that failed, as "label seed 2"; they have no translations to compare."""

    @property
    def kind(self) -> Kind:
        """What is known of the two models."""
        if self.failed:
            return "failed"
        if self.p < ALPHA:
            return "one seed" if min(self.seeds) == 1 else "decided"
        is_alike = min(self.seeds) > 1 and max(map(abs, self.interval)) < ALIKE
        return "alike" if is_alike else "open"

    def swapped(self) -> "Comparison":
        """Return the same comparison with first and second exchanged."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            seeds=(self.seeds[1], self.seeds[0]),
            difference=-self.difference,
            interval=Interval(-self.interval.high, -self.interval.low),
        )

    @property
    def verdict(self) -> str:
        """Who beats whom, that both are alike, or the reason why neither is known."""
        winner, loser = (self.first, self.second) if self.difference > 0 else (self.second, self.first)
        return {
            "failed": f"not compared, as runs failed: {', '.join(self.failed)}",
            "one seed": "significant on this test set, with one seed",
            "decided": f"{winner} beats {loser}",
            "alike": f"alike within {ALIKE:g} BLEU",
            "open": f"no difference shown; {self.findable} would have been found",
        }[self.kind]

    @property
    def findable(self) -> str:
        """The smallest true difference that would have been found; none, where it is beyond any score."""
        # Of one seed no variance is known, so nothing is said of other seeds.
        models = " between two trained models" if min(self.seeds) == 1 else ""
        found = f"a difference of {format_points(self.smallest)}" if self.smallest < 100 else "no difference"
        return f"{found}{models}"


def compared_with(comparisons: Iterable[Comparison], label: str) -> dict[str, Comparison]:
    """Index the comparisons of a model by the other model, which is first."""
    both = (direction for each in comparisons for direction in (each, each.swapped()))
    return {each.first: each for each in both if each.second == label}


def compare_models(scored: Mapping[str, ScoredTestSet], *, baseline: str = "") -> list[Comparison]:
    """Compare every other model with ``baseline``, or all pairs of models, by BLEU on the first test set.

    Other scores and test sets are not tested: each more would make Holm's correction stricter.

    Args:
        scored: the test sets by name, as ``score_tests`` returns them.
        baseline: a label; empty: that of ``scoring.baseline``, and if this is empty too, all pairs are
            compared, the model further down the table being the first.

    Returns:
        One comparison per pair, its ``p`` corrected for all of them.

    Raises:
        ValueError: the baseline does not exist, two runs differ in the settings that a table shares, or the
            test set has one sentence, which says nothing about others.
    """
    if not scored:
        return []
    test = next(iter(scored.values()))
    if len(set(test.settings.values())) > 1:
        raise ValueError(
            "runs were trained or decoded with different settings (see settings_hash), so no test can "
            "compare their models: keep them in folders of their own"
        )
    first_run = next(iter(next(iter(test.models.values())).values()))
    if len(first_run.counts) < 2:
        raise ValueError(f"{test.name} has one sentence, which says nothing about others")
    baseline = baseline or test.baseline
    if not baseline:
        pairs = [(first, second) for second, first in combinations(test.models, 2)]
    else:
        check_label(baseline, test.models)
        pairs = [(label, baseline) for label in test.models if label != baseline]
    comparisons = [_compare(test, first, second, len(pairs)) for first, second in pairs]
    corrected = holm_correction([comparison.p_alone for comparison in comparisons])
    return [replace(comparison, p=p) for comparison, p in zip(comparisons, corrected, strict=True)]


def _compare(test: ScoredTestSet, first: str, second: str, tests: int) -> Comparison:
    """Compare two models; ``p`` is not yet corrected for the number of ``tests``."""
    runs = [list(test.models[label].values()) for label in (first, second)]
    found = welch_test(*runs)
    return Comparison(
        first=first,
        second=second,
        seeds=(len(runs[0]), len(runs[1])),
        difference=found.difference,
        interval=found.interval,
        p_alone=found.p,
        p=found.p,
        smallest=found.smallest_difference(tests),
        failed=tuple(
            f"{label} seed {seed}" for label in (first, second) for seed in test.failed.get(label, ())
        ),
    )


def choose_reference(finished: FinishedExperiment) -> str:
    """Return the model to compare the others with: ``scoring.baseline``, once one of its runs has finished.

    Else it is that of the highest ``mean_bleu``.
    """
    if finished.baseline in finished.labels:
        return finished.baseline
    means = mean_bleu(finished)
    return max(means, key=lambda label: means[label])


# Main outcome of an experiment in sentences.


LEARNED = 10.0
"""BLEU of the best model below which none translates yet, so that their order says nothing."""


def any_translates(means: Mapping[str, float]) -> bool:
    """Return whether a model has learned enough for a comparison to mean something, by ``mean_bleu``."""
    return max(means.values()) >= LEARNED


def headlines(finished: FinishedExperiment, comparisons: Sequence[Comparison]) -> list[str]:
    """Compare a model with all others, a sentence for each kind of verdict, and by training speed.

    It is that of ``scoring.baseline``, or else that of the highest ``mean_bleu``: none is ahead because its
    bad seed is missing.

    Args:
        finished: the experiment.
        comparisons: of its models, as ``compare_models`` makes them.

    Returns:
        The sentences, or the reason why there is no comparison; one that names the models of which runs
        failed and none ended.
    """
    failed = [label for label in finished.failed_seeds if label not in finished.labels]
    lost = [f"Not compared, as runs failed and none ended: {', '.join(failed)}."] if failed else []
    means = mean_bleu(finished)
    highest = max(means.values())
    if len(means) == 1:
        return ["There is one finished model, so nothing to compare.", *lost]
    if not any_translates(means):
        return [
            f"No model translates yet (highest BLEU {highest:.1f}): train longer before comparing.",
            *lost,
        ]
    if len(set(means.values())) == 1:
        return [f"All models have the same BLEU, {highest:.1f}.", *lost]
    best = choose_reference(finished)
    ordered = sorted(means, key=lambda label: means[label], reverse=True)
    others = [label for label in ordered if label != best]
    against = compared_with(comparisons, best)
    found = [against[label].swapped() for label in others]
    return [*_verdicts(best, found), *_describe_speeds(best, others, finished), *lost]


MOST_NAMED = 5
"""Largest number of models that a sentence names one by one."""


def _verdicts(best: str, found: Sequence[Comparison]) -> list[str]:
    """Describe the comparisons of a model, which is first, a sentence for each kind of verdict."""
    decided, likely, alike, unknown = (
        [each for each in found if each.kind == kind] for kind in ("decided", "one seed", "alike", "open")
    )
    wins = [each for each in decided if each.difference > 0]
    losses = [each.swapped() for each in decided if each.difference < 0]
    broken = [run for each in found for run in each.failed]
    sentences = []
    if wins:
        numbers = {number for each in wins for number in each.seeds}
        seeds = f", {numbers.pop()} seeds each" if len(numbers) == 1 else ""
        sentences.append(f"{best} beats {_leads(wins)}{seeds}.")
    sentences += [f"{each.first} beats {_leads([each])}." for each in losses]
    for side, some in (
        ("ahead of", [each for each in likely if each.difference > 0]),
        ("behind", [each for each in likely if each.difference <= 0]),
    ):
        if some:
            sentences.append(f"{best} is {side} {_leads(some)}: significant on this test set, with one seed.")
    if alike:
        names = ", ".join(each.second for each in alike)
        sentences.append(f"Alike within {ALIKE:g} BLEU of {best}: {names}.")
    if unknown:
        behind = [
            f"{each.second} ({format_points(abs(each.difference))} BLEU "
            f"{'behind' if each.difference >= 0 else 'ahead'}; {each.findable} would have been found)"
            for each in unknown
        ]
        many = f"{len(unknown)} models ({_range(unknown)} apart)"
        sentences.append(f"No difference to {best} is shown for {_join(behind, many)}.")
    if broken:
        sentences.append(f"Not compared with {best}, as runs failed: {', '.join(dict.fromkeys(broken))}.")
    return sentences


def _leads(found: Sequence[Comparison]) -> str:
    """List models with the lead over them, or where they are many, the range of leads."""
    leads = [
        f"{each.second} by {format_points(each.difference)} BLEU ({describe_p(each.p)})" for each in found
    ]
    highest = describe_p(max(each.p for each in found))
    return _join(leads, f"{len(found)} models by {_range(found)} ({highest} at most)")


def _range(found: Sequence[Comparison]) -> str:
    low, high = (format_points(end(abs(each.difference) for each in found)) for end in (min, max))
    return f"{low} to {high} BLEU"


def _join(parts: Sequence[str], many: str = "") -> str:
    """List parts of a sentence: "a", "a and b", "a, b and c"; more than ``MOST_NAMED`` are ``many``."""
    if len(parts) > MOST_NAMED:
        return many
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _describe_speeds(best: str, others: Sequence[str], finished: FinishedExperiment) -> list[str]:
    """Compare the training speed of the best model with those of others, where it is known to differ.

    Nothing is said where these are more than ``MOST_NAMED``.
    """
    ratios = {label: _speed_ratio(finished.labels[best], finished.labels[label]) for label in others}
    known = [f"{ratio:.2f} times those of {label}" for label, ratio in ratios.items() if ratio is not None]
    return [f"Timed training tokens/s of {best}: {_join(known)}."] if 0 < len(known) <= MOST_NAMED else []


def _speed_ratio(first: Sequence[FinishedRun], second: Sequence[FinishedRun]) -> float | None:
    """Divide two training speeds; None unless timed together, undisturbed, and with spreads apart."""
    one, other = (timed_spread(runs, "timed_tokens_per_s") for runs in (first, second))
    runs = [*first, *second]
    shares = (share for run in runs for share in (run.result.cpu_share, run.result.reference_share))
    disturbed = any(share < DISTURBED for share in shares if share is not None)
    if one is None or other is None or disturbed or not are_timed_together(runs):
        return None
    if not (one.is_above(other) or other.is_above(one)):
        return None
    rates = [fmean(run.result.timed_tokens_per_s or 0.0 for run in runs) for runs in (first, second)]
    return rates[0] / rates[1]


def mean_bleu(finished: FinishedExperiment) -> dict[str, float]:
    """Average BLEU on the first test set by label, over the seeds with which no model failed, if any."""
    models, failures = finished.labels, finished.failed_seeds
    failed = {seed for label in models for seed in failures.get(label, ())}
    means = {}
    for label, runs in models.items():
        scores = {run.result.seed: run.result.bleu or 0.0 for run in runs}
        means[label] = fmean([bleu for seed, bleu in scores.items() if seed not in failed] or scores.values())
    return means


# All of it, for those who only show it.


def compare_all(
    finished: FinishedExperiment,
) -> tuple[dict[str, ScoredTestSet], list[Comparison], list[str]]:
    """Score the test sets, compare the models and describe the outcome.

    Returns:
        The scored test sets, the comparisons, none where no model translates yet, and the sentences, which
        say why.
    """
    if not all(run.run.translates for run in finished.runs):
        return {}, [], ["Language models have no translations to compare: their figures are perplexities."]
    if finished.no_texts:
        return {}, [], [f"{NO_INTERVALS}: {finished.no_texts}"]
    scored = score_tests(finished)
    try:
        comparisons = compare_models(scored)
    except ValueError as error:
        return scored, [], [f"The models were not compared: {explain(error)}"]
    outcome = headlines(finished, comparisons)
    return scored, comparisons if any_translates(mean_bleu(finished)) else [], outcome


def summarise(folder: Path, *, data_root: str = "") -> Summary:
    """Compute the means and the outcome of an experiment.

    Args:
        folder: of the experiment.
        data_root: the folder of the corpus; empty: that of the config.

    Raises:
        ValueError: no run is finished, or a file is damaged.
    """
    finished = load_finished(folder, data_root=data_root, needs_texts=False)
    scored, _, outcome = compare_all(finished)
    means = aggregate_seeds(finished, scored)
    return Summary(results=results_hash(finished.results), means=means, outcome=outcome)
