"""Statistics of translations: scores of resampled test sets, confidence intervals, corrected p-values.

References:
- Chen and Cherry 2014, A Systematic Comparison of Smoothing Techniques for Sentence-Level BLEU. WMT.
- Cohen 1988, Statistical Power Analysis for the Behavioral Sciences. Erlbaum.
- Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6(2).
- Papineni et al. 2002, BLEU: a Method for Automatic Evaluation of Machine Translation. ACL.
- Noreen 1989, Computer-Intensive Methods for Testing Hypotheses. Wiley.
- Satterthwaite 1946, An Approximate Distribution of Estimates of Variance Components. Biometrics Bulletin
  2(6).
- Welch 1947, The Generalization of "Student's" Problem when Several Different Population Variances Are
  Involved. Biometrika 34.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import estimate_ci
from scipy.special import stdtr, stdtrit

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.seeds import find_groups, groups_text, seed_mean
from compare.results.columns import PRIMARY
from compare.results.formatting import Row
from compare.results.records import read_likelihoods
from compare.results.store import is_setting
from compare.scoring import (
    BOOTSTRAP_SEED,
    HEADLINE,
    METRICS,
    TOKENIZE,
    ScoringOptions,
    clip,
    make_bleu,
    metric_of,
    outcome_tests,
    read_scored,
)
from compare.system.messages import did_you_mean
from data.files import as_paths

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Scores from sums of sentence statistics, so that thousands of resamples cost one matrix product.
#
# N sentences. The statistics are those that sacrebleu computes a corpus score from, with its defaults; scores
# from their sums equal sacrebleu's up to rounding.


MAX_NGRAM_ORDER = 4


def bleu(sums: npt.ArrayLike) -> FloatArray:
    """Compute corpus BLEU (cased), 0 to 100.

    An n-gram order without a match gets the exponential smoothing of mteval-v13a (Chen and Cherry 2014,
    method 3). As in sacrebleu, BLEU is 0 if nothing matches at all or if no sentence has four words.

    Args:
        sums: lengths of hypothesis and reference, matches of 1- to 4-grams, their totals: (..., 10).
    """
    counts = np.asarray(sums, dtype=np.float64)
    hyp_len, ref_len = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2 : 2 + MAX_NGRAM_ORDER], counts[..., 2 + MAX_NGRAM_ORDER :]
    no_match = matches == 0
    smoothed = np.where(no_match, 0.5 ** no_match.cumsum(axis=-1), matches)
    log_precision = np.log(smoothed / np.maximum(totals, 1)).mean(axis=-1)
    log_brevity_penalty = np.minimum(0, 1 - ref_len / np.maximum(hyp_len, 1))
    nonzero = ~no_match.all(axis=-1) & (totals > 0).all(axis=-1)
    return np.where(nonzero, 100 * np.exp(log_brevity_penalty + log_precision), 0)


def sentence_counts(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = TOKENIZE
) -> IntArray:
    """Count the statistics of N sentences, (N, 10), whose sums ``bleu`` needs; the array is cached.

    Raises ValueError unless there are as many hypotheses as references.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    return _count(tokenize, tuple(hypotheses), tuple(references))


@lru_cache(maxsize=256)  # about a hundred translations of two test sets, 0.1 MB per 1,000 sentences
def _count(tokenize: str, hypotheses: tuple[str, ...], references: tuple[str, ...]) -> IntArray:
    counter = _with_references(tokenize, references)
    # None stands for the references that the metric has counted already.
    counts = np.array(counter._extract_corpus_statistics(hypotheses, None), dtype=np.int64)
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=2)  # two test sets; the runs of a test set are scored one after the other
def _with_references(tokenize: str, references: tuple[str, ...]) -> BLEU:
    return make_bleu(tokenize, references=[references])


# Translations of a test set by each model and seed, with the sentence statistics that the tests use.
#
# N sentences, R resamples.


BLEU_POINTS, NATS = "BLEU", "nats per token"
"""Units of the two outcomes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledScore:
    """Score of one run on a test set, and on resamples of the test set."""

    units: int
    """Sentences, or documents, that a resample draws."""
    score: float
    resampled: FloatArray
    """Score of each bootstrap resample, (R,); resample r is the same for every run."""

    @classmethod
    def of(cls, counts: FloatArray | IntArray, score: Callable[[Any], Any], draws: FloatArray) -> Self:
        """Score the sums of statistics, (N, S), and those of resamples, (R, N)."""
        return cls(units=len(counts), score=float(score(counts.sum(axis=0))), resampled=score(draws @ counts))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTestSet:
    """A test set with its translations by every model and seed."""

    name: str
    models: Mapping[str, Mapping[int, SampledScore]]
    """Scores by label, then by seed."""
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """``Result.settings_hash`` by run; models that differ in it are not compared."""
    failed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Failed seeds by label."""
    pairs: Sequence[tuple[str, str]] = ()
    """Planned pairs of labels, first minus second; empty: all pairs."""
    outcome: str = "first"
    """``scoring.outcome``: which test set decides."""
    metric: str = BLEU_POINTS


def bootstrap_draws(sentences: int, resamples: int) -> FloatArray:
    """Draw how often each resample contains each sentence, (R, N), like sacrebleu."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    indices = rng.choice(sentences, size=(resamples, sentences), replace=True)
    return np.stack([np.bincount(resample, minlength=sentences) for resample in indices]).astype(np.float64)


def score_test_set(
    name: str,
    references: Sequence[str],
    outputs: Mapping[str, Mapping[int, Sequence[str]]],
    *,
    resamples: int = 1000,
    tokenize: str = TOKENIZE,
    documents: Sequence[str] = (),
    **more: Any,
) -> ScoredTestSet:
    """Compute the resampled scores of one test set; ``outputs`` are by label and seed.

    If ``documents`` are named, they are resampled instead of sentences. Raises ValueError unless there are as
    many translations as references.
    """
    counts = {
        label: {seed: sentence_counts(lines, references, tokenize) for seed, lines in runs.items()}
        for label, runs in outputs.items()
    }
    return _resample(counts, bleu, documents or range(len(references)), resamples, name=name, **more)


def _resample(
    counts: Mapping[str, Mapping[int, Any]],
    score: Callable[[Any], Any],
    documents: Sequence[Any],
    resamples: int,
    **more: Any,
) -> ScoredTestSet:
    names, numbers = np.unique(documents, return_inverse=True)
    draws = bootstrap_draws(len(names), resamples)

    def sample(values: Any) -> SampledScore:
        totals = np.zeros((len(names), values.shape[1]), dtype=values.dtype)
        np.add.at(totals, numbers, values)
        return SampledScore.of(totals, score, draws)

    models = {
        label: {seed: sample(values) for seed, values in runs.items()} for label, runs in counts.items()
    }
    return ScoredTestSet(models=models, **more)


def score_tests(finished: FinishedExperiment, *, resamples: int = 1000) -> dict[str, ScoredTestSet]:
    """Score every test set of an experiment; takes about 1 s per run and 1,000 sentences."""
    return {
        test: score_test_set(
            test,
            finished.references(test),
            {
                label: {run.result.seed: run.outputs[test] for run in runs}
                for label, runs in finished.labels.items()
            },
            resamples=resamples,
            tokenize=finished.scoring.tokenize,
            documents=finished.corpus.docs.get(test, ()),
            **_planned(finished),
        )
        for test in finished.corpus.tests
    }


def _planned(finished: FinishedExperiment) -> dict[str, Any]:
    settings = {run.result.run: run.result.settings_hash for run in finished.runs}
    return {
        "settings": settings,
        "failed": finished.failed_seeds,
        "pairs": finished.planned_pairs,
        "outcome": finished.scoring.outcome,
    }


def score_likelihoods(finished: FinishedExperiment, *, resamples: int = 1000) -> dict[str, ScoredTestSet]:
    """Compute the log-likelihood per token of the references, in nats: the second outcome.

    Returns nothing unless there are trained runs and all have stored it per sentence.
    """
    scored = {}
    for test in finished.corpus.tests if finished.trained.runs else ():
        values: dict[str, dict[int, FloatArray]] = {}
        sentences = len(finished.corpus.splits[test].src)
        for run in finished.trained.runs:
            record = read_likelihoods(run.likelihoods) if run.likelihoods.exists() else None
            if record is None or len(record.sentences.get(test, ())) != sentences:
                return {}
            logp = np.array(record.sentences[test])[:, None] / record.tests[test].tokens
            values.setdefault(run.result.label, {})[run.result.seed] = logp
        documents = finished.corpus.docs.get(test) or range(sentences)
        planned = _planned(finished.trained) | {"name": test, "metric": NATS}
        scored[test] = _resample(values, lambda sums: sums[..., 0], documents, resamples, **planned)
    return scored


def decisive_scores(scored: Mapping[str, ScoredTestSet]) -> ScoredTestSet:
    """Return the test set that decides by ``scoring.outcome``, or the means of all.

    Raises ValueError if there is no such test set.
    """
    first = next(iter(scored.values()))
    decisive = [scored[test] for test in outcome_tests(first.outcome, list(scored))]
    if len(decisive) == 1:
        return decisive[0]
    models = {
        label: {seed: mean_score([test.models[label][seed] for test in decisive]) for seed in runs}
        for label, runs in first.models.items()
    }
    return replace(first, name=f"the mean of {len(decisive)} test sets", models=models)


def mean_score(scores: Sequence[SampledScore]) -> SampledScore:
    """Average the scores of a run on several test sets, resampled independently."""
    # Test sets of one size share their draws, so that each is shifted by another number of resamples.
    resampled = [np.roll(sampled.resampled, shift) for shift, sampled in enumerate(scores)]
    return SampledScore(
        units=sum(sampled.units for sampled in scores),
        score=fmean(sampled.score for sampled in scores),
        resampled=np.mean(resampled, axis=0),
    )


# 95% confidence intervals of mean scores and of mean differences, for three sources of variation.
#
# - ``test_set``: how would these trained models score on other test sentences?
# - ``seeds``: how would models trained with other seeds score on these test sentences?
# - ``combined``: how would models trained with other seeds score on other test sentences?
#
# k seeds, R resamples, N sentences. The tests measure by simulation how often each holds, and
# ``benchmarks/significance.py`` does so for comparisons.


class Interval(NamedTuple):
    """A 95% confidence interval, in points of the score."""

    low: float
    high: float


class Intervals(NamedTuple):
    """The three intervals of a figure, where known; one seed has only the first."""

    test_set: Interval | None
    seeds: Interval | None
    combined: Interval | None

    def columns(self, stem: str, suffix: str = "") -> Row:
        """Return the limits as table columns such as ``<stem>_seeds_low<suffix>``."""
        columns: Row = {}
        for kind, interval in self._asdict().items():
            low, high = interval or (None, None)
            columns |= {f"{stem}_{kind}_low{suffix}": low, f"{stem}_{kind}_high{suffix}": high}
        return columns


class Variances(NamedTuple):
    """Variances of a mean over k seeds on a test set, by their source."""

    sentences: float
    """Over test sets, with the same seeds."""
    seeds: float
    """Over seeds, on the same test set; 0 for one seed."""
    interaction: float
    """Included in both: a seed that does well on some sentences by chance."""

    @property
    def total(self) -> float:
        """Variance over test sets and seeds."""
        return self.sentences + max(self.seeds - self.interaction, 0.0)


def t_quantile(dof: float, level: float = 0.95) -> float:
    """Return half the width of a t interval in standard errors."""
    return float(stdtrit(dof, (1 + level) / 2))


def model_intervals(runs: Sequence[SampledScore]) -> Intervals:
    """Compute the intervals of a model's mean score from the scores of its seeds."""
    scores = np.array([run.score for run in runs])
    resampled = np.stack([run.resampled for run in runs])
    return clip_intervals(confidence_intervals(scores, resampled, runs[0].units))


def clip_intervals(intervals: Intervals) -> Intervals:
    """Clip the limits to the range of scores, 0 to 100."""
    return Intervals(*(interval and Interval(*map(clip, interval)) for interval in intervals))


def confidence_intervals(scores: FloatArray, resampled: FloatArray, sentences: int) -> Intervals:
    """Compute the three intervals of the mean of ``scores``, (k,), and resamples, (k, R).

    ``test_set`` is a bootstrap interval (Koehn 2004), ``seeds`` an interval of Student's t; for ``combined``
    see ``combined_half_width``.
    """
    center, half_width = estimate_ci(resampled.mean(axis=0))
    test_set = Interval(float(center - half_width), float(center + half_width))
    if (seeds := seed_interval(scores.tolist())) is None:
        return Intervals(test_set, None, None)
    mean = float(scores.mean())
    half = combined_half_width(estimate_variances(scores, resampled), len(scores), sentences)
    return Intervals(test_set, seeds, Interval(mean - half, mean + half))


def seed_interval(scores: Sequence[float]) -> Interval | None:
    """Compute the interval over seeds from the scores alone; None for one seed."""
    if len(scores) < 2:
        return None
    half = t_quantile(len(scores) - 1) * stdev(scores) / math.sqrt(len(scores))
    return Interval(fmean(scores) - half, fmean(scores) + half)


def estimate_variances(scores: FloatArray, resampled: FloatArray) -> Variances:
    """Estimate the variances of the mean of ``scores``.

    The bootstrap yields the interaction: the variance over resamples is m + x for a single seed and m + x/k
    for the mean over the k seeds, where m is common to all seeds and x is the interaction.
    """
    k = len(scores)
    of_mean = float(resampled.mean(axis=0).var(ddof=1))
    if k == 1:
        return Variances(of_mean, 0.0, 0.0)
    interaction = (float(resampled.var(axis=1, ddof=1).mean()) - of_mean) / (k - 1)
    return Variances(of_mean, float(scores.var(ddof=1)) / k, interaction)


def combined_half_width(variances: Variances, seeds: int, sentences: int) -> float:
    """Compute half the width of the combined interval, for two seeds or more.

    It is an interval of Student's t on the total variance. Its degrees of freedom are the harmonic mean of
    those of both sources, weighted by their shares of the variance. Satterthwaite (1946) weights by squared
    shares, which is too short here: a share estimated from few seeds is often far too low, so that such
    intervals cover 87 to 93% with 2 to 4 seeds. For the same reason the interval is never narrower than that
    over seeds.
    """
    over_seeds = t_quantile(seeds - 1) * math.sqrt(variances.seeds)
    if not (total := variances.total):
        return over_seeds
    share = min(variances.seeds / total, 1.0)
    dof = 1 / (share / (seeds - 1) + (1 - share) / max(sentences - 1, 1))
    return max(over_seeds, t_quantile(dof) * math.sqrt(total))


# The test by which one model beats another.


ALPHA = 0.05
"""Significance level of the corrected p-value."""
POWER = 0.8
"""Power of the minimum detectable difference (Cohen 1988)."""


class WelchTest(NamedTuple):
    """Welch's t test of two sets of seeds, with the variance over test sentences added."""

    difference: float
    error: float
    """Standard error of the difference."""
    dof: float

    @property
    def p(self) -> float:
        """Two-sided p-value; without any variance, 1 for equal means and 0 for others."""
        if not self.error:
            return float(self.difference == 0)
        return float(2 * stdtr(self.dof, -abs(self.difference) / self.error))

    @classmethod
    def of(cls, difference: float, parts: Sequence[tuple[float, float]]) -> Self:
        """Combine independent variances with their degrees of freedom (Satterthwaite 1946)."""
        total = sum(part for part, _ in parts)
        squares = sum(part**2 / dof for part, dof in parts if part)
        return cls(difference, math.sqrt(total), total**2 / squares if squares else math.inf)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the confidence interval of the difference."""
        half = t_quantile(self.dof, level) * self.error
        return Interval(self.difference - half, self.difference + half)

    def smallest_difference(self, tests: int) -> float:
        """Return the difference detected with probability ``POWER``, as one of ``tests``."""
        return float(stdtrit(self.dof, 1 - ALPHA / (2 * tests)) + stdtrit(self.dof, POWER)) * self.error


def welch_test(first: Sequence[SampledScore], second: Sequence[SampledScore]) -> WelchTest:
    """Test whether other seeds of two models would differ on other sentences.

    The variance has three parts: for each model that over its seeds (Welch 1947), at least as large as the
    interaction, because few seeds may agree by luck; and that over resamples of the test set, which both
    share, without the interaction. With one seed, the test is of these very models. The degrees of freedom
    are those of Satterthwaite 1946, N - 1 for the sentences.
    """
    models = [
        (np.array([run.score for run in runs]), np.stack([run.resampled for run in runs]))
        for runs in (first, second)
    ]
    over_seeds = [estimate_variances(*model) for model in models]
    resampled = models[0][1].mean(axis=0) - models[1][1].mean(axis=0)
    shared = float(resampled.var(ddof=1)) - sum(variances.interaction for variances in over_seeds)
    of_sentences = first[0].units - 1
    parts = [(max(shared, 0.0), of_sentences)]
    for variances, runs in zip(over_seeds, (first, second), strict=True):
        is_seeds = variances.seeds >= variances.interaction
        parts.append((variances.seeds, len(runs) - 1) if is_seeds else (variances.interaction, of_sentences))
    return WelchTest.of(float(models[0][0].mean() - models[1][0].mean()), parts)


# Results with one row per model instead of one row per run: means, standard deviations, intervals.


_LIMIT = re.compile(r"(?P<metric>.+)_ci_(?P<end>low|high)(?P<suffix>(_.+)?)")
"""Column of an interval's limit; the suffix names a further test set."""


def aggregate_seeds(finished: FinishedExperiment, scored: Mapping[str, ScoredTestSet]) -> list[Row]:
    """Aggregate the runs of each label over their seeds, one row per label.

    - A number becomes its mean, or None if a seed lacks it. ``<name>_sd`` is the standard deviation;
      ``<name>_groups`` lists BLEU that lies in two groups.
    - Other values stay if all seeds agree. ``seeds`` is the number of seeds.
    - With the outcome "mean", the mean BLEU stands beside the test sets as that of one called mean.
    - The intervals become those of the mean score: ``bleu_test_set_low``, ``bleu_seeds_low``,
      ``bleu_combined_low`` and ``_high``, with the suffix of further test sets. Without translations only
      the interval over seeds, or that of the only run, is known.
    """
    tests = {f"_{test}" if number else "": scores for number, (test, scores) in enumerate(scored.items())}
    is_mean = finished.scoring.outcome == "mean"
    if is_mean and scored:
        tests["_mean"] = decisive_scores(scored)
    rows = []
    for label, runs in finished.labels.items():
        by_suffix = {suffix: list(test.models[label].values()) for suffix, test in tests.items()}
        seed_rows = [run.result.flat() for run in runs]
        for row, run in zip(seed_rows, runs, strict=True):
            if is_mean:
                row |= {"bleu_mean": finished.outcome_bleu(run.result), "bleu_ci_low_mean": None}
                row["bleu_signature_mean"] = run.result.bleu_signature
        rows.append(_aggregate_row(seed_rows, by_suffix))
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def _aggregate_row(seed_rows: Sequence[Row], scored: Mapping[str, Sequence[SampledScore]]) -> Row:
    aggregate: Row = {}
    for name in dict.fromkeys(name for row in seed_rows for name in row):
        limit = _LIMIT.fullmatch(name)
        if name == "seed":
            aggregate["seeds"] = len(seed_rows)
        elif limit is None:
            values: list[Any] = [row.get(name) for row in seed_rows]
            aggregate[name] = seed_mean(values)
            if all(isinstance(value, int | float) for value in values) and not is_setting(name):
                aggregate[f"{name}_sd"] = stdev(values) if len(values) > 1 else None
                if metric_of(name) is METRICS[PRIMARY] and (groups := find_groups(values)):
                    aggregate[f"{name}_groups"] = groups_text(groups)
        elif limit["end"] == "low":
            metric, suffix = limit["metric"], limit["suffix"]
            if suffix in scored and metric == PRIMARY:
                intervals = model_intervals(scored[suffix])
            else:
                intervals = _intervals_of_rows(seed_rows, metric, suffix)
            aggregate |= intervals.columns(metric, suffix)
    if aggregate.get("length_normalization") is None:  # penalties of two forms have no mean
        aggregate |= {name: None for name in ("length_penalty", "length_penalty_sd") if name in aggregate}
    return aggregate


def _intervals_of_rows(seed_rows: Sequence[Row], metric: str, suffix: str) -> Intervals:
    """Return the intervals of a mean that are known without the translations.

    Those of several runs do not give that of their mean: the runs do well on the same sentences.
    """
    names = [f"{metric}{end}{suffix}" for end in ("", "_ci_low", "_ci_high")]
    if any(row.get(name) is None for row in seed_rows for name in names):
        return Intervals(None, None, None)
    score, low, high = names
    if len(seed_rows) == 1:
        return Intervals(Interval(seed_rows[0][low], seed_rows[0][high]), None, None)
    intervals = Intervals(None, seed_interval([row[score] for row in seed_rows]), None)
    return clip_intervals(intervals) if metric == PRIMARY else intervals


def check_label(label: str, labels: Collection[str]) -> None:
    """Raise ValueError with the nearest label if no finished model has ``label``."""
    if label not in labels:
        raise ValueError(f"no finished model is labelled {label!r}; {did_you_mean(label, labels)}")


# Comparisons of files, and correction for many tests.


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons; controls the family-wise error (Holm 1979)."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min((len(p_values) - rank) * p_values[index], 1.0))
        corrected[index] = largest
    return corrected


class PairedDifference(NamedTuple):
    """Difference in BLEU between two translations of one test set."""

    first: str
    second: str
    difference: float
    """BLEU of first minus BLEU of second."""
    p: float
    """Two-sided p-value of approximate randomisation, Holm-corrected for the call."""


RANDOMISATIONS = 10_000


def compare_files(
    systems: Sequence[str | Path], references: Sequence[str | Path], scoring: ScoringOptions = HEADLINE
) -> list[PairedDifference]:
    """Test which files of translations differ in BLEU; it says nothing of models trained again.

    In each trial two systems exchange their translations of random sentences (Noreen 1989); p is the share of
    trials, the observation included, with at least this difference. sacreBLEU counts only larger ones, so
    that systems that differ in a single sentence get p = 0.0001.

    Raises ValueError if two files have different numbers of lines.
    """
    paths = as_paths(systems)
    outputs, texts = read_scored(paths, as_paths(references))
    metric = make_bleu(scoring.tokenize, lowercase=scoring.lowercase, references=texts)
    counts = [np.array(metric._extract_corpus_statistics(lines, None)) for lines in outputs]
    rng, pairs = np.random.default_rng(BOOTSTRAP_SEED), list(combinations(counts, 2))
    differences = [float(bleu(one.sum(0)) - bleu(other.sum(0))) for one, other in pairs]
    as_large = [1] * len(pairs)  # the observed difference
    for _ in range(RANDOMISATIONS // 100):  # in parts, since all would need 160 kB of memory per line
        swapped = rng.integers(2, size=(100, len(texts[0]))).astype(np.float64)
        for index, (one, other) in enumerate(pairs):
            moved = swapped @ (other - one)
            random_differences = bleu(one.sum(0) + moved) - bleu(other.sum(0) - moved)
            least = abs(differences[index]) - 1e-9  # tolerance for rounding
            as_large[index] += int((np.abs(random_differences) >= least).sum())
    corrected = holm_correction([count / (RANDOMISATIONS + 1) for count in as_large])
    names = combinations(map(str, paths), 2)
    return [
        PairedDifference(first, second, difference, p)
        for (first, second), difference, p in zip(names, differences, corrected, strict=True)
    ]
