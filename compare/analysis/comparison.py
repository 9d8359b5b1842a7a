"""Comparison of models: significant differences, power, and the main outcome in sentences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from statistics import fmean, median
from typing import Literal

from compare.analysis.finished_experiment import FinishedExperiment, speed_ratios
from compare.analysis.statistics import (
    ALPHA,
    BLEU_POINTS,
    NATS,
    Interval,
    ScoredTestSet,
    check_label,
    decisive_scores,
    holm_correction,
    score_likelihoods,
    score_tests,
    welch_test,
)
from compare.results.formatting import DISTURBED, describe_p, format_points
from compare.results.store import NO_INTERVALS
from compare.scoring import outcome_tests
from compare.system.messages import explain

# The rule by which one model beats another.
#
# k seeds of a model, N sentences, R resamples of the test set.


ALIKE = 1.0
"""Two models are alike if the 90% interval of their difference lies within this many BLEU of 0.

These are two one-sided tests at 5%, not corrected for the number of pairs (Schuirmann 1987).
"""
CEILING = 98.0
"""BLEU above which a test set cannot separate models."""
FALSE_WINS, FALSE_FAMILIES = 0.06, 0.12
"""Highest false-win rates with two seeds, for one pair and for six (benchmarks/significance.md)."""
Kind = Literal["failed", "decided", "one seed", "alike", "open"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of model ``first`` with model ``second`` by the outcome of the experiment.

    One model beats the other if ``p`` is below ``ALPHA``, unless a run of either failed: the seeds that are
    left are those with which training went well.
    """

    first: str
    second: str
    seeds: tuple[int, int]
    difference: float
    """Mean score of first minus that of second."""
    interval: Interval
    """95% confidence interval of the difference, uncorrected."""
    interval_90: Interval
    """90% confidence interval, by which models are alike."""
    p_alone: float
    p: float
    """``p_alone`` with Holm's correction for all comparisons of one call."""
    smallest: float
    """Minimum detectable difference with probability ``POWER`` (first Holm step)."""
    failed: tuple[str, ...] = ()
    """Failed runs of either model, as "label seed 2"."""
    metric: str = BLEU_POINTS
    test: str = ""

    @property
    def kind(self) -> Kind:
        """Outcome of the comparison."""
        if self.failed:
            return "failed"
        if self.p < ALPHA:
            return "one seed" if min(self.seeds) == 1 else "decided"
        return "alike" if self.is_alike else "open"

    @property
    def is_alike(self) -> bool:
        """True if the difference is certainly small; it may be significant nevertheless."""
        is_known = min(self.seeds) > 1 and not self.failed and self.metric == BLEU_POINTS
        return is_known and max(map(abs, self.interval_90)) < ALIKE

    def size(self, difference: float) -> str:
        """Format a difference without sign and unit; an impossible one as "more than 100"."""
        if self.metric != BLEU_POINTS:
            return f"{abs(difference):.3f}"
        return format_points(abs(difference)) if abs(difference) < 100 else "more than 100"

    @property
    def lead(self) -> str:
        """The difference without sign, with its unit."""
        return f"{self.size(self.difference)} {self.metric}"

    def swapped(self) -> "Comparison":
        """Return the same comparison with first and second exchanged."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            seeds=(self.seeds[1], self.seeds[0]),
            difference=-self.difference,
            interval=Interval(-self.interval.high, -self.interval.low),
            interval_90=Interval(-self.interval_90.high, -self.interval_90.low),
        )

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        winner, loser = (self.first, self.second) if self.difference > 0 else (self.second, self.first)
        return {
            "failed": f"not compared, because runs failed: {', '.join(self.failed)}",
            "one seed": "significant on this test set, with one seed",
            "decided": f"{winner} beats {loser}" + (f", {WITHIN}" if self.is_alike else ""),
            "alike": WITHIN,
            "open": f"not significant; {describe_detectable([self])}",
        }[self.kind]


WITHIN = f"alike within {ALIKE:g} BLEU"


def describe_detectable(comparisons: Sequence[Comparison]) -> str:
    """State the range of minimum detectable differences."""
    low, high = (end(comparisons, key=lambda pair: pair.smallest) for end in (min, max))
    if low.smallest >= 100:
        return "no difference would have been detected"
    sizes = dict.fromkeys(pair.size(pair.smallest) for pair in (low, high))
    # One seed shows no variance, so the sentence is about these very models.
    models = " between trained models" if min(min(pair.seeds) for pair in comparisons) == 1 else ""
    return f"a difference of about {' to '.join(sizes)}{models} would probably have been detected"


def compared_with(comparisons: Iterable[Comparison], label: str) -> dict[str, Comparison]:
    """Index the comparisons with one model by the other, which is first."""
    both = (direction for pair in comparisons for direction in (pair, pair.swapped()))
    return {pair.first: pair for pair in both if pair.second == label}


def compare_models(scored: Mapping[str, ScoredTestSet], *, baseline: str = "") -> list[Comparison]:
    """Compare the planned pairs of models, or every other model with ``baseline``, by ``scoring.outcome``.

    Holm's correction covers these comparisons, not other scores and test sets.

    Raises:
        ValueError: a label or the outcome does not exist, settings that a table shares differ between
            runs, or the test set has one sentence or document.
    """
    if not scored:
        return []
    test = decisive_scores(scored)
    if len(set(test.settings.values())) > 1:
        raise ValueError(
            "the runs were trained or decoded with different settings (see settings_hash), so no test can "
            "compare their models: put them into separate folders"
        )
    first_run = next(iter(next(iter(test.models.values())).values()))
    if first_run.units < 2:
        raise ValueError(f"{test.name} has only one sentence or document: a test needs several")
    pairs = [*test.pairs] or [(first, second) for second, first in combinations(test.models, 2)]
    if baseline:
        pairs = [(label, baseline) for label in test.models if label != baseline]
    for label in chain.from_iterable(pairs):
        check_label(label, test.models)
    comparisons = [_compare(test, first, second, len(pairs)) for first, second in pairs]
    corrected = holm_correction([comparison.p_alone for comparison in comparisons])
    return [replace(comparison, p=p) for comparison, p in zip(comparisons, corrected, strict=True)]


def _compare(test: ScoredTestSet, first: str, second: str, tests: int) -> Comparison:
    runs = [list(test.models[label].values()) for label in (first, second)]
    test_result = welch_test(*runs)
    return Comparison(
        first=first,
        second=second,
        seeds=(len(runs[0]), len(runs[1])),
        difference=test_result.difference,
        interval=test_result.interval(),
        interval_90=test_result.interval(0.9),
        p_alone=test_result.p,
        p=test_result.p,
        smallest=test_result.smallest_difference(tests),
        failed=tuple(
            f"{label} seed {seed}" for label in (first, second) for seed in test.failed.get(label, ())
        ),
        metric=test.metric,
        test=test.name,
    )


def choose_reference(finished: FinishedExperiment) -> str:
    """Return the finished baseline, or else the model with the highest ``mean_bleu``."""
    if (baseline := finished.scoring.baseline) in finished.labels:
        return baseline
    means = mean_bleu(finished)
    return max(means, key=lambda label: means[label])


# Main outcome of an experiment in sentences.


LEARNED = 10.0
"""BLEU of the best model below which none translates yet."""


def any_translates(means: Mapping[str, float]) -> bool:
    """Return whether a model has learned enough for a comparison to mean something."""
    return max(means.values()) >= LEARNED


def headlines(finished: FinishedExperiment, comparisons: Sequence[Comparison]) -> list[str]:
    """Compare the reference model with all others, a sentence per kind of verdict; further pairs; speeds.

    Failed models without a finished run are named, too. The reference is that of ``choose_reference``.
    """
    failed = [label for label in finished.failed_seeds if label not in finished.labels]
    lost = [f"Not compared, because all their runs failed: {', '.join(failed)}."] if failed else []
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
    others = [label for label in sorted(means, key=means.__getitem__, reverse=True) if label != best]
    where = f"on {comparisons[0].test} " * (len(finished.corpus.tests) > 1)
    if finished.budget is not None:
        where += f"at {finished.budget:,} updates"
    start = f"{where[0].upper()}{where[1:].rstrip()}, " if where else ""
    sentences = [f"{start}{clause}." for clause in _all_clauses(finished, comparisons, means)]
    if any(min(pair.seeds) == 2 and not pair.failed for pair in comparisons):
        sentences.append(
            "Two seeds make the test lenient. Of two equal models it calls one better in up to "
            f"{FALSE_WINS:.0%} of experiments, and of four in up to {FALSE_FAMILIES:.0%}, instead of 5%."
        )
    return [*sentences, *_describe_speeds(best, others, finished), *lost]


MOST_NAMED = 5
"""Most models that a sentence names one by one."""


def _all_clauses(
    finished: FinishedExperiment, comparisons: Sequence[Comparison], means: Mapping[str, float]
) -> list[str]:
    """Compare the reference with all others, and then the models of each of ``scoring.pairs``."""
    best = choose_reference(finished)
    against = compared_with(comparisons, best)
    ordered = sorted(means, key=means.__getitem__, reverse=True)
    clauses = _clauses(best, [against[label].swapped() for label in ordered if label in against], means)
    for pair in comparisons:
        if (names := (pair.first, pair.second)) in finished.scoring.pairs:
            clauses += _clauses(pair.first, [pair], {label: means[label] for label in names})
    return clauses


def _clauses(best: str, pairs: Sequence[Comparison], means: Mapping[str, float]) -> list[str]:
    """Compare ``best``, the first model of every comparison: a clause per kind of verdict."""
    top = [label for label, mean in means.items() if mean > CEILING]
    clauses = []
    if len(top) > 1:
        names = _join(top, f"{len(top)} models")
        clauses.append(f"{names} are at the ceiling (above {CEILING:g} BLEU), where they cannot be separated")
        pairs = [pair for pair in pairs if not {pair.first, pair.second} <= {*top}]
    decided, likely, alike, unclear = (
        [pair for pair in pairs if pair.kind == kind] for kind in ("decided", "one seed", "alike", "open")
    )
    wins = [pair for pair in decided if pair.difference > 0 and not pair.is_alike]
    if wins:
        numbers = {number for pair in wins for number in pair.seeds}
        seeds = f", {numbers.pop()} seeds each" if len(numbers) == 1 else ""
        clauses.append(f"{best} beats {_leads(wins)}{seeds}")
    for pair in decided:
        first, second = (pair.first, pair.second)[:: 1 if pair.difference > 0 else -1]
        if pair.is_alike:
            lead = f"{pair.lead} ahead of {second} ({describe_p(pair.p)})"
            clauses.append(f"{first} is {lead}, {WITHIN}")
        elif pair.difference < 0:
            clauses.append(f"{first} beats {_leads([pair.swapped()])}")
    for side, some in (
        ("ahead of", [pair for pair in likely if pair.difference > 0]),
        ("behind", [pair for pair in likely if pair.difference <= 0]),
    ):
        if some:
            clauses.append(f"{best} is {side} {_leads(some)}: significant on this test set, with one seed")
    if alike:
        names = _join([pair.second for pair in alike], f"{len(alike)} models")
        clauses.append(f"{names} {'is' if len(alike) == 1 else 'are'} within {ALIKE:g} BLEU of {best}: alike")
    if broken := [run for pair in pairs for run in pair.failed]:
        clauses.append(f"{best} is not compared where runs failed: {', '.join(dict.fromkeys(broken))}")
    if unclear:
        distances = f"{len(unclear)} models are {_range(unclear)} from {best}"
        if len(unclear) <= MOST_NAMED:
            ahead = [
                f"{pair.second} is ahead of {best} by {pair.lead}" for pair in unclear if pair.difference < 0
            ]
            behind = [
                f"{pair.second} is behind {best} by {pair.lead}" for pair in unclear if pair.difference >= 0
            ]
            parts = _join_once(ahead, f"is ahead of {best}"), _join_once(behind, f"is behind {best}")
            distances = "; ".join(filter(None, parts))
        detectable = f"With these seeds {describe_detectable(unclear)}"
        clauses.append(f"{distances}: not significant. {detectable}")
    return clauses


def _leads(pairs: Sequence[Comparison]) -> str:
    leads = [f"{pair.second} by {pair.lead} ({describe_p(pair.p)})" for pair in pairs]
    highest = describe_p(max(pair.p for pair in pairs))
    return _join(leads, f"{len(pairs)} models by {_range(pairs)} ({highest} at most)")


def _range(pairs: Sequence[Comparison]) -> str:
    low, high = (end(pairs, key=lambda pair: abs(pair.difference)) for end in (min, max))
    return f"{low.size(low.difference)} to {high.lead}"


def _join(parts: Sequence[str], many: str = "") -> str:
    """Join "a", "a and b", "a, b and c"; more than ``MOST_NAMED`` parts become ``many``."""
    if len(parts) > MOST_NAMED:
        return many
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _join_once(clauses: Sequence[str], *repeated: str) -> str:
    """Join clauses, of which all but the first leave out the ``repeated`` words."""
    shortened = list(clauses)
    for words in repeated:
        shortened[1:] = [f" {clause} ".replace(f" {words} ", " ").strip() for clause in shortened[1:]]
    return _join(shortened) if shortened else ""


def further_outcomes(finished: FinishedExperiment, scored: Mapping[str, ScoredTestSet]) -> list[str]:
    """Compare by the other test sets and by likelihood, a sentence each."""
    best, sentences = choose_reference(finished), []
    decisive = outcome_tests(finished.scoring.outcome, list(scored))
    further = {
        f"On {name}, which does not decide": replace(test, outcome="first")
        for name, test in scored.items()
        if [name] != decisive
    }
    if likelihoods := score_likelihoods(finished):
        further["By log-likelihood, the second outcome"] = replace(
            decisive_scores(likelihoods), outcome="first"
        )
    for where, test in further.items():
        means = {label: fmean(run.score for run in runs.values()) for label, runs in test.models.items()}
        if best not in means or len(means) < 2 or (test.metric != NATS and not any_translates(means)):
            continue
        try:
            comparisons = compare_models({test.name: test})
        except ValueError as error:
            sentences.append(f"{where}: the models were not compared: {explain(error)}.")
            continue
        clauses = _all_clauses(finished, comparisons, means)
        sentences.append(f"{where}: {'. '.join(clauses)}.")
    return sentences


VERBS = {"train": "trains", "greedy": "decodes greedily", "beam": "decodes by beam search"}
"""Activities by the phase of a timing."""
MOST_RATIOS = 3
"""Most models whose speeds one sentence compares."""


def _describe_speeds(best: str, others: Sequence[str], finished: FinishedExperiment) -> list[str]:
    """Compare speeds with those of ``best``, a line per phase; the faster model is the subject."""
    named = [best, *others]
    ratios = {label: speed_ratios(finished.labels[label], finished.labels[best]) for label in others}
    if not any(ratios.values()) or len(others) > MOST_NAMED:
        return []
    lines = []
    for phase, verb in VERBS.items():
        faster, slower, unclear = [], [], []
        for label, rounds in ((label, phases[phase]) for label, phases in ratios.items() if phase in phases):
            low, high = min(rounds), max(rounds)
            if low > 1:
                faster.append(_faster(label, best, verb, rounds))
            elif high < 1:
                slower.append(_faster(best, label, verb, [1 / ratio for ratio in rounds]))
            else:
                unclear.append(f"{label} {verb} {low:.2f}–{high:.2f} times as fast as {best}")
        sentences = [
            _join_once(part, *repeated)
            for clauses, repeated in ((faster, (verb, f"as {best}")), (slower, (f"{best} {verb}",)))
            for part in (clauses[:MOST_RATIOS], clauses[MOST_RATIOS:])
        ]
        if unclear:
            sentences.append(f"{_join_once(unclear, verb, f'as {best}')}: no difference is shown")
        lines += [f"{'. '.join(filter(None, sentences))}."] * any(sentences)
    lines[0] += " Brackets show the range over the timed rounds."
    results = [run.result for label in named for run in finished.labels[label]]
    shares = (share for result in results for share in (result.cpu_share, result.reference_share))
    least = min((share for share in shares if share is not None), default=1.0)
    if least < DISTURBED:
        lines.append(
            "These timings were disturbed: at the lowest, a model had "
            f"{least:.0%} of the processor or of the machine's best speed."
        )
    return lines


def _faster(fast: str, slow: str, verb: str, rounds: Sequence[float]) -> str:
    spread = f"({min(rounds):.2f}–{max(rounds):.2f})"
    return f"{fast} {verb} {median(rounds):.2f} times as fast as {slow} {spread}"


def mean_bleu(finished: FinishedExperiment) -> dict[str, float]:
    """Average the decisive BLEU by label, over the seeds with which no model failed, if any."""
    models, failures = finished.labels, finished.failed_seeds
    failed = {seed for label in models for seed in failures.get(label, ())}
    means = {}
    for label, runs in models.items():
        scores = {run.result.seed: finished.outcome_bleu(run.result) or 0.0 for run in runs}
        means[label] = fmean([bleu for seed, bleu in scores.items() if seed not in failed] or scores.values())
    return means


# The whole comparison, for reports that only show it.


def compare_all(finished: FinishedExperiment) -> tuple[dict[str, ScoredTestSet], list[Comparison], list[str]]:
    """Score the test sets, compare the models and describe the outcome in sentences.

    Without comparisons, the sentences state the reason.
    """
    if not all(run.run.translates for run in finished.runs):
        return {}, [], ["Language models have no translations to compare, only perplexities."]
    if finished.no_texts:
        return {}, [], [f"{NO_INTERVALS}: {finished.no_texts}"]
    scored = score_tests(finished)
    try:
        comparisons = compare_models(scored)
    except ValueError as error:
        return scored, [], [f"The models were not compared: {explain(error)}"]
    outcome = headlines(finished, comparisons)
    if not any_translates(mean_bleu(finished)):
        return scored, [], outcome
    return scored, comparisons, outcome + further_outcomes(finished, scored)
