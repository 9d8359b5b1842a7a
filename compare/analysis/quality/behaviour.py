"""Rates of faults that a score may hide: output that is too short, repetitive, cut off or empty."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.table import Row, Table
from compare.config.sections import EXTRA_TOKENS
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
"""A character that is in no vocabulary; it stands for the unknown token when a text is encoded again."""


def behaviour(finished: FinishedExperiment) -> Table:
    """Measure the rate of each fault, one row per run and test set."""
    rows = []
    for run in finished.runs:
        vocabularies = load_pair(run.folder)
        for test in finished.corpus.tests:
            names = {"label": run.result.label, "seed": run.result.seed, "test": test}
            rows.append(names | _fault_rates(run, test, finished.corpus.splits[test], vocabularies))
    return Table(CAPTION.format(extra=EXTRA_TOKENS), rows)


def _fault_rates(run: FinishedRun, test: str, pairs: Pairs, vocabularies: VocabularyPair) -> Row:
    """Measure the rates of one run on one test set."""
    outputs, result, ratio = run.outputs[test], run.result, run.run.decode.max_ratio
    references = [split_words(line) for line in pairs.tgt]
    penalties = [
        repetition_penalty(split_words(line), reference)
        for line, reference in zip(outputs, references, strict=True)
    ]
    sources = vocabularies.src.encode_all(pairs.src)
    lengths = token_counts(outputs, vocabularies.tgt)
    cut_off = [n >= int(ratio * len(ids)) + EXTRA_TOKENS for n, ids in zip(lengths, sources, strict=True)]
    return {
        "length_ratio": result.tests[test]["length_ratio"] if test in result.tests else result.length_ratio,
        "rep_score": 100 * sum(penalties) / sum(map(len, references)),
        "repeating_percent": _percent([penalty > 0 for penalty in penalties]),
        "cut_off_percent": _percent(cut_off),
        "empty_percent": _percent([not line.strip() for line in outputs]),
    }


def repetition_penalty(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """Compute the penalty of the REP score for one sentence (Malaviya et al. 2018; lambda 1 and 2, n = 2).

    A bigram that occurs more than once in the hypothesis counts as often as it exceeds its count in the
    reference. A bigram of twice the same word counts twice its excess, even if it occurs only once.

    Args:
        hypothesis: the words of the translation.
        reference: the words of the reference.
    """
    hyp_bigrams, ref_bigrams = Counter(pairwise(hypothesis)), Counter(pairwise(reference))
    excess = hyp_bigrams - ref_bigrams
    repeated = sum(times for bigram, times in excess.items() if hyp_bigrams[bigram] > 1)
    doubled = sum(times for (first, second), times in excess.items() if first == second)
    return repeated + 2 * doubled


def token_counts(lines: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """Count the tokens of each translation by encoding its text.

    The count is exact for a vocabulary of characters, and wherever the model segmented the text as the
    vocabulary does. Output of a barely trained subword model may count a few tokens too many.
    """
    # Vocabularies of words and characters decode the unknown token to its name, which is several tokens.
    texts = [line.replace(SPECIALS[UNK], UNKNOWN_CHARACTER) for line in lines]
    return [len(ids) for ids in vocabulary.encode_all(texts)]


def _percent(flags: Sequence[bool]) -> float:
    return 100 * sum(flags) / len(flags)
