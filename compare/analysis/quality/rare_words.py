"""Word accuracy by how often a word occurs in training.

A word is correct as often as it occurs in both translation and reference of a sentence, in any position
(clipped counts), as in the word accuracy of compare-mt (Neubig et al. 2019). Words are cased.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.quality.lengths import Bucket
from compare.analysis.quality.texts import extract_words, training_pairs
from compare.analysis.table import Row, Table

BUCKET_STARTS = (0, 1, 5, 20, 100, 1_000)
"""The lowest training count of each bucket."""
BUCKET_NAMES = (*(str(Bucket(low, after - 1)) for low, after in pairwise(BUCKET_STARTS)), "1000+")

Words = Sequence[str]
"""The words of a sentence."""


class Matches(NamedTuple):
    """Numbers of words in both references and translations, in the references, and in the translations."""

    both: int
    ref: int
    hyp: int

    def percentages(self, prefix: str = "") -> Row:
        """Return recall (both / ref), precision (both / hyp) and F1 from 0 to 100, as table columns.

        Args:
            prefix: beginning of the column names.

        Returns:
            The three figures; None where the denominator is 0.
        """
        return {
            f"{prefix}recall_percent": _percent(self.both, self.ref),
            f"{prefix}precision_percent": _percent(self.both, self.hyp),
            f"{prefix}f1_percent": _percent(2 * self.both, self.ref + self.hyp),
        }


def count_matches(hypotheses: Iterable[Words], references: Iterable[Words]) -> Matches:
    """Count matching words sentence by sentence."""
    return count_matches_by_kind(("",), lambda _: "", hypotheses, references)[""]


def count_matches_by_kind(
    kinds: Sequence[str],
    kind_of: Callable[[str], str],
    hypotheses: Iterable[Words],
    references: Iterable[Words],
) -> dict[str, Matches]:
    """Count matching words sentence by sentence, separately for each kind of word.

    Args:
        kinds: all kinds.
        kind_of: returns the kind of a word.
        hypotheses: the words of each translation.
        references: the words of each reference.

    Returns:
        Matches by kind.

    Raises:
        ValueError: there are not as many hypotheses as references.
    """
    both, ref, hyp = Counter[str](), Counter[str](), Counter[str]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        hyp_counts, ref_counts = Counter(hypothesis), Counter(reference)
        for total, counts in ((both, hyp_counts & ref_counts), (ref, ref_counts), (hyp, hyp_counts)):
            for word, times in counts.items():
                total[kind_of(word)] += times
    return {kind: Matches(both[kind], ref[kind], hyp[kind]) for kind in kinds}


def rare_words(finished: FinishedExperiment, test: str) -> Table:
    """Measure recall, precision and F1 of words by training count, one row per run and bucket of counts.

    Args:
        finished: the experiment.
        test: name of the test set.
    """
    training_counts = Counter(word for line in training_pairs(finished).tgt for word in extract_words(line))
    references = [extract_words(line) for line in finished.corpus.splits[test].tgt]
    rows = []
    for run in finished.runs:
        outputs = [extract_words(line) for line in run.outputs[test]]
        matches_by_bucket = count_matches_by_kind(
            BUCKET_NAMES, lambda word: _bucket_name(training_counts[word]), outputs, references
        )
        for bucket, matches in matches_by_bucket.items():
            names = {"label": run.result.label, "seed": run.result.seed, "training_count": bucket}
            counts = {"ref_words": matches.ref, "hyp_words": matches.hyp}
            rows.append(names | counts | matches.percentages())
    caption = (
        f"Words of {test} by their count on the target side of training: how many words of the reference "
        "occur in its translation (recall), how many words of the translation occur in the "
        "reference (precision), and F1; counts clipped as in compare-mt (Neubig et al. 2019)."
    )
    return Table(caption, rows)


def _bucket_name(count: int) -> str:
    """Return the bucket of a word that occurs ``count`` times in training."""
    return BUCKET_NAMES[bisect(BUCKET_STARTS, count) - 1]


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
