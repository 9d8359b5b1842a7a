"""How well words are translated, by how rare they were in training.

A word is right as often as it stands in both the translation and the reference of a sentence, wherever it
stands there (clipped counts): the word accuracy of compare-mt (Neubig et al. 2019). Words are cased.
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
"""Where each bucket of counts in training begins."""
BUCKET_NAMES = (*(str(Bucket(low, after - 1)) for low, after in pairwise(BUCKET_STARTS)), "1000+")

Words = Sequence[str]
"""The words of a sentence."""


class Matches(NamedTuple):
    """How many words stand in the references, in the translations, and in both."""

    both: int
    ref: int
    hyp: int

    def percentages(self, prefix: str = "") -> Row:
        """Recall (both of ref), precision (both of hyp) and F1, 0-100; None where there is no such word."""
        return {
            f"{prefix}recall_percent": _percent(self.both, self.ref),
            f"{prefix}precision_percent": _percent(self.both, self.hyp),
            f"{prefix}f1_percent": _percent(2 * self.both, self.ref + self.hyp),
        }


def count_matches(hypotheses: Iterable[Words], references: Iterable[Words]) -> Matches:
    """Count matches line by line."""
    return count_matches_by_kind(("",), lambda _: "", hypotheses, references)[""]


def count_matches_by_kind(
    names: Sequence[str],
    kind: Callable[[str], str],
    hypotheses: Iterable[Words],
    references: Iterable[Words],
) -> dict[str, Matches]:
    """Count matches line by line for the words of each ``kind`` apart; ``names`` are all kinds there are."""
    both, ref, hyp = Counter[str](), Counter[str](), Counter[str]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found, wanted = Counter(hypothesis), Counter(reference)
        for total, counts in ((both, found & wanted), (ref, wanted), (hyp, found)):
            for word, times in counts.items():
                total[kind(word)] += times
    return {name: Matches(both[name], ref[name], hyp[name]) for name in names}


def rare_words(finished: FinishedExperiment, test: str) -> Table:
    """Recall, precision and F1 of words by their count in training, one row a run and bucket of counts."""
    trained = Counter(word for line in training_pairs(finished).tgt for word in extract_words(line))
    references = [extract_words(line) for line in finished.corpus.splits[test].tgt]
    rows = []
    for run in finished.runs:
        outputs = [extract_words(line) for line in run.outputs[test]]
        found = count_matches_by_kind(
            BUCKET_NAMES, lambda word: _count_name(trained[word]), outputs, references
        )
        for name, matches in found.items():
            about = {"label": run.result.label, "seed": run.result.seed, "training_count": name}
            counts = {"ref_words": matches.ref, "hyp_words": matches.hyp}
            rows.append(about | counts | matches.percentages())
    caption = (
        f"Words of {test} by how often the target side of training has them: how many of the reference were "
        "found in the same sentence of the translation (recall), how many of the translation stand in the "
        "reference (precision), and F1; counts clipped as in compare-mt (Neubig et al. 2019)."
    )
    return Table(caption, rows)


def _count_name(count: int) -> str:
    """The bucket of a word that training has ``count`` times."""
    return BUCKET_NAMES[bisect(BUCKET_STARTS, count) - 1]


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
