"""Attention as word alignment, measured on a text and on a finished experiment.

References:
- Koehn and Knowles 2017, Six Challenges for Neural Machine Translation. WNMT.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.gold_alignments import (
    AlignmentCounts,
    CountArray,
    Gold,
    corpus_gold,
    get_split,
    word_pairs,
)
from compare.analysis.tables import Row
from compare.analysis.word_attention import (
    ARG_MAX,
    METHODS,
    SHIFTS,
    AttentionEntropy,
    WordAttention,
    arg_max,
    attend_words,
    diagonal,
    method_number,
    none_if_nan,
    shift_links,
    sum_entropy,
)
from compare.attention.layers import AttentionHead
from compare.decoding.translator import Translator
from compare.results.run_folder import load_model
from data.files import write_atomically

# Link counts and attention entropy of every head of a model over a text with gold links.
#
# Shapes: M methods, N shifts, C heads and means of heads, T target and S source words of a pair.


class LinkChoice(NamedTuple):
    """A method that derives links, and the head whose weights it uses."""

    method: int
    """Index in ``METHODS``."""
    head: int
    """Index in ``AlignmentMeasurement.heads``."""


@dataclass(frozen=True, kw_only=True)
class AlignmentMeasurement:
    """Link counts of every head by every method, and the entropy of every head."""

    heads: tuple[AttentionHead, ...]
    counts: CountArray
    """(M, C, 4)."""
    shifted: CountArray
    """Those of arg max links, moved by ``SHIFTS``: (N, C, 4)."""
    entropy: AttentionEntropy

    def plus(self, other: "AlignmentMeasurement") -> "AlignmentMeasurement":
        """Return the sums over the sentence pairs of both, which must be of the same model."""
        return AlignmentMeasurement(
            heads=self.heads,
            counts=self.counts + other.counts,
            shifted=self.shifted + other.shifted,
            entropy=self.entropy.plus(other.entropy),
        )

    def link_counts(self, choice: LinkChoice) -> AlignmentCounts:
        """Return the counts of one method and head."""
        return AlignmentCounts(*self.counts[choice].tolist())

    def best(self, name: str, heads: Iterable[int]) -> LinkChoice:
        """Choose the method and head with the lowest AER; of equal ones the first.

        An AER of None, where there is neither a proposed nor a sure link, is worse than any other.

        Args:
            name: name of the methods to choose from.
            heads: indices in ``heads`` to choose from.
        """
        methods = [index for index, method in enumerate(METHODS) if method.name == name]
        choices = [LinkChoice(method, head) for head in heads for method in methods]
        return choices[_find_lowest([self.link_counts(choice).aer for choice in choices])]

    def rows(self, method: str) -> list[Row]:
        """Return one table row per head and mean of heads.

        Args:
            method: see ``method_number``, which names the error.
        """
        number = method_number(method)
        rows = [self.row(LinkChoice(number, head)) for head in range(len(self.heads))]
        if method == ARG_MAX:
            rows = [row | self._best_shift(head) for head, row in enumerate(rows)]
        return rows

    def _best_shift(self, head: int) -> Row:
        """Return the shift that gives arg max links the lowest AER, the nearest of equal ones, and that AER.

        Attention can be one word off: Koehn and Knowles 2017, section 3.5.
        """
        errors = [AlignmentCounts(*self.shifted[index, head].tolist()).aer for index in range(len(SHIFTS))]
        best = _find_lowest(errors)
        return {"shift": SHIFTS[best], "aer_shifted": errors[best]}

    def row(self, choice: LinkChoice) -> Row:
        """Return the scores and entropy of one choice as a table row; a missing figure is None."""
        method, (nats, share) = METHODS[choice.method], self.entropy.means()
        return {
            "attention": str(self.heads[choice.head]),
            "method": method.name,
            "threshold": method.threshold,
            **self.link_counts(choice).scores(),
            "entropy_nats": none_if_nan(nats[choice.head]),
            "entropy_share": none_if_nan(share[choice.head]),
        }


def measure_alignment(translator: Translator, gold: Gold) -> AlignmentMeasurement | None:
    """Align the sentence pairs of ``gold`` with every head of a model.

    Args:
        translator: the model, from ``load_model``.
        gold: the pairs and their links, from ``read_gold``.

    Returns:
        The sums over all pairs; ``rows("arg max")`` gives one table row per head. None for a model without
        attention to the source.
    """
    pairs = (_measure_pair(pair, gold) for pair in attend_words(translator, gold.pairs))
    first = next(pairs, None)
    return None if first is None else reduce(AlignmentMeasurement.plus, pairs, first)


def _measure_pair(pair: WordAttention, gold: Gold) -> AlignmentMeasurement:
    """Count links and entropy of one sentence pair."""
    links = arg_max(pair.weights)
    return AlignmentMeasurement(
        heads=pair.heads,
        counts=gold.count(pair.number, np.stack([method.links(pair.weights) for method in METHODS])),
        shifted=gold.count(pair.number, np.stack([shift_links(links, by) for by in SHIFTS])),
        entropy=sum_entropy(pair.weights),
    )


def _find_lowest(errors: Sequence[float | None]) -> int:
    """Return the index of the lowest AER, of equal ones the first; None is worse than any other."""
    return int(np.argmin([np.inf if error is None else error for error in errors]))


# Links that attention proposes, written in Pharaoh format for other programs and for scoring again.


def write_link_files(translator: Translator, gold: Gold, folder: Path, method: str) -> list[Path]:
    """Write one file of links per head of a model; returns their paths.

    A file has one line per pair of ``gold``, with "i-j" for a link of source word i and target word j, both
    counted from 0. Its name is that of the head, such as ``cross.0-head-1.links``.

    Args:
        translator: the model, from ``load_model``.
        gold: the pairs, from ``read_gold``.
        folder: it is made if it is not there.
        method: as in ``AlignmentMeasurement.rows``.
    """
    derive = METHODS[method_number(method)].links
    lines: dict[str, list[str]] = {}
    for pair in attend_words(translator, gold.pairs):
        for head, links in zip(pair.heads, derive(pair.weights), strict=True):
            head_lines = lines.setdefault(str(head).replace(" ", "-"), [""] * len(gold.pairs))
            pairs_of_words = zip(*links.T.nonzero(), strict=True)
            head_lines[pair.number] = " ".join(f"{i}-{j}" for i, j in pairs_of_words)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for head_name, content in lines.items():
        paths.append(folder / f"{head_name}.links")
        write_atomically(paths[-1], "".join(f"{line}\n" for line in content))
    return paths


# Word alignment from the attention of every finished run, scored against the gold links of the corpus.
#
# Head and threshold are chosen on the validation split; the scores reported are those of a test set.


logger = logging.getLogger(__name__)

BASELINE = "diagonal"
"""Label and method of the baseline, diagonal links that need no model."""


class Alignments(NamedTuple):
    """Result of ``align_experiment``."""

    rows: list[Row]
    """The baseline; then by run and method the best head and, for several heads, the best mean of heads."""
    heads: list[Row]
    """Every head and mean of heads of every run, with arg max links, on validation."""
    chosen: dict[tuple[str, int], AttentionHead]
    """The head or mean with the lowest validation AER of arg max links, by label and seed."""


def align_experiment(
    finished: FinishedExperiment,
    *,
    test: str | None = None,
    device: str = "cpu",
) -> Alignments:
    """Align a test set with every run that has attention to the source; other runs have no rows.

    Args:
        finished: the experiment.
        test: name of a test set; None is the first, which gives the headline.
        device: the torch device on which the models run.

    Raises:
        ValueError: the corpus has no gold links, the test set does not exist, or a run cannot be loaded.
    """
    test = test or finished.corpus.tests[0]
    valid_gold, test_gold = (corpus_gold(finished.corpus, split) for split in ("valid", test))
    alignments = Alignments([baseline_row(test_gold)], [], {})
    for run in finished.runs:
        logger.info(f"aligning {test}: {run.folder.name}")
        translator = load_model(run.folder, device)
        valid, tested = measure_alignment(translator, valid_gold), measure_alignment(translator, test_gold)
        if valid is None or tested is None:
            continue
        names = {"label": run.result.label, "seed": run.result.seed}
        heads = range(len(valid.heads))
        alignments.rows.extend(names | row for row in best_choice_rows(valid, tested))
        alignments.heads.extend(names | valid.row(valid.best(ARG_MAX, [head])) for head in heads)
        alignments.chosen[run.result.label, run.result.seed] = valid.heads[valid.best(ARG_MAX, heads).head]
    return alignments


def best_choice_rows(valid: AlignmentMeasurement, tested: AlignmentMeasurement) -> Iterator[Row]:
    """Yield the test scores of the best single head, then of the best mean of heads, for each method.

    Args:
        valid: the model on the validation split, where head and threshold are chosen.
        tested: the same model on the test set.
    """
    for kind in ("head", "mean"):
        heads = [i for i, head in enumerate(valid.heads) if (head.number is None) == (kind == "mean")]
        for method in dict.fromkeys(method.name for method in METHODS) if heads else ():
            best = valid.best(method, heads)
            yield {"read": kind, **tested.row(best), "aer_valid": valid.link_counts(best).aer}


def baseline_row(gold: Gold) -> Row:
    """Score diagonal links, which depend only on the lengths of the two sentences."""
    counts = [gold.count(number, diagonal(*pair.size[::-1])) for number, pair in enumerate(gold.pairs)]
    total = AlignmentCounts(*np.sum(counts, axis=0).tolist())
    names = {"label": BASELINE, "seed": None, "read": None, "attention": None, "method": BASELINE}
    return {**names, **total.scores()}


def median_over_seeds(rows: Sequence[Row]) -> list[Row]:
    """Summarise the rows that differ only in their seed by median, minimum and maximum.

    Args:
        rows: as in ``Alignments.rows``.

    Returns:
        One row per label, kind of head and method.
    """
    groups: dict[tuple[str, str | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["label"], row["read"], row["method"]), []).append(row)
    return [
        {
            "label": label,
            "read": kind,
            "method": method,
            "seeds": sum(row["seed"] is not None for row in group),
            "aer_median": _apply(median, group, "aer"),
            "aer_lowest": _apply(min, group, "aer"),
            "aer_highest": _apply(max, group, "aer"),
            "precision_median": _apply(median, group, "precision"),
            "recall_median": _apply(median, group, "recall"),
        }
        for (label, kind, method), group in groups.items()
    ]


def _apply(function: Callable[[list[float]], float], rows: Sequence[Row], column: str) -> float | None:
    """Apply ``function`` to the values of ``column`` that are not None; None if all are."""
    values = [row[column] for row in rows if row[column] is not None]
    return function(values) if values else None


# Attention entropy of the models of an experiment; this needs no gold links.
#
# Shapes: C heads and means of heads of a model.


def attention_spread(
    finished: FinishedExperiment, *, test: str | None = None, device: str = "cpu"
) -> list[Row]:
    """Measure the entropy of attention over a test set.

    The entropy of a head is its mean over target words, in nats and as a share of log S.

    Args:
        finished: the experiment.
        test: name of a test set; None is the first, which gives the headline.
        device: the torch device on which the models run.

    Returns:
        One row per run with attention to the source: the mean over all heads of all layers, and the entropies
        of the head with the lowest and of the head with the highest.

    Raises:
        ValueError: the test set does not exist, or a run cannot be loaded.
    """
    pairs = word_pairs(get_split(finished.corpus, test or finished.corpus.tests[0]))
    rows = []
    for run in finished.runs:
        heads: tuple[AttentionHead, ...] = ()
        total: AttentionEntropy | None = None
        for pair in attend_words(load_model(run.folder, device), pairs):
            sums = sum_entropy(pair.weights)
            heads, total = pair.heads, sums if total is None else total.plus(sums)
        if total is None:
            continue
        single_heads = [index for index, head in enumerate(heads) if head.number is not None]
        nats, share = (values[single_heads] for values in total.means())
        rows.append(
            {
                "label": run.result.label,
                "seed": run.result.seed,
                "heads": len(single_heads),
                "entropy_nats": none_if_nan(nats.mean()),
                "entropy_nats_narrowest": none_if_nan(nats.min()),
                "entropy_nats_widest": none_if_nan(nats.max()),
                "entropy_share": none_if_nan(share.mean()),
            }
        )
    return rows
