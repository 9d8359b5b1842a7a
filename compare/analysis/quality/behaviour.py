"""Faults of translations that a score hides: too short, repeating, cut off, empty."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.table import Row, Table
from compare.decoding.translator import EXTRA_TOKENS
from data.corpus import Pairs
from data.vocabulary import SPECIALS, UNK, Vocabulary, VocabularyPair, load_pair
from data.words import split_words

CAPTION = (
    "Length ratio: tokens of the translations over those of the references (13a). REP score: words repeated "
    "beyond the reference, per 100 of its words (Malaviya et al. 2018); repeating: translations with any. "
    "Cut off: translations of max_ratio x source tokens + {extra} tokens, where search gives up; tokens are "
    "counted by encoding the text again, as the vocabulary would cut it. Empty: nothing but white space."
)
UNKNOWN_CHARACTER = "\ufffd"
"""One sign that no vocabulary knows: the unknown word's place when its text is encoded again."""


def behaviour(finished: FinishedExperiment) -> Table:
    """Rates of each fault, one row a run and test set."""
    rows = []
    for run in finished.runs:
        vocabularies = load_pair(run.folder)
        for test in finished.corpus.tests:
            about = {"label": run.result.label, "seed": run.result.seed, "test": test}
            rows.append(about | _faults(run, test, finished.corpus.splits[test], vocabularies))
    return Table(CAPTION.format(extra=EXTRA_TOKENS), rows)


def _faults(run: FinishedRun, test: str, pairs: Pairs, vocabularies: VocabularyPair) -> Row:
    """The figures of one run on one test set."""
    outputs, result, ratio = run.outputs[test], run.result, run.experiment.decode.max_ratio
    references = [split_words(line) for line in pairs.tgt]
    again = [
        repetition_penalty(split_words(line), ref) for line, ref in zip(outputs, references, strict=True)
    ]
    sources = vocabularies.src.encode_all(pairs.src)
    lengths = token_counts(outputs, vocabularies.tgt)
    cut_off = [n >= int(ratio * len(ids)) + EXTRA_TOKENS for n, ids in zip(lengths, sources, strict=True)]
    return {
        "length_ratio": result.tests[test]["length_ratio"] if test in result.tests else result.length_ratio,
        "rep_score": 100 * sum(again) / sum(map(len, references)),
        "repeating_percent": _percent([penalty > 0 for penalty in again]),
        "cut_off_percent": _percent(cut_off),
        "empty_percent": _percent([not line.strip() for line in outputs]),
    }


def repetition_penalty(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """The penalty of the REP score for one sentence (Malaviya et al. 2018; lambda 1 and 2, n = 2).

    For each pair of neighbours that the hypothesis holds more than once, how much more often than the
    reference does; for each word that stands twice in a row, twice that, even if it does so but once.
    """
    found, wanted = Counter(pairwise(hypothesis)), Counter(pairwise(reference))
    more = found - wanted
    again = sum(times for pair, times in more.items() if found[pair] > 1)
    doubled = sum(times for (one, other), times in more.items() if one == other)
    return again + 2 * doubled


def token_counts(lines: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """How many tokens each translation had, by encoding its text.

    Exact for characters, and wherever the model cut the text as the vocabulary does; subwords of a model that
    has hardly been trained come out a few too many.
    """
    # Words and characters decode the unknown token to its name, which would not be read as one token.
    known = [line.replace(SPECIALS[UNK], UNKNOWN_CHARACTER) for line in lines]
    return [len(ids) for ids in vocabulary.encode_all(known)]


def _percent(found: Sequence[bool]) -> float:
    return 100 * sum(found) / len(found)
