"""Accuracy of copied names and numbers, and of translated numbers.

A number is any word with a digit. If the target language is English or German, the words of
``spelled_numbers`` are numbers too; in other languages only words with a digit count.
"""

from collections import Counter
from collections.abc import Container

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.quality.rare_words import Words, count_matches
from compare.analysis.quality.spelled_numbers import spelled_numbers
from compare.analysis.quality.texts import extract_words, training_pairs
from compare.analysis.table import Table

CAPTION = (
    "Copies: words of {test} that occur in both source and reference and have a digit, or have a capital "
    "and never occur in lower case in training; the share of them that occurs in the translation. "
    "Numbers: words with a digit{spelled}; recall, precision and F1 against the reference, per sentence."
)
SPELLED_OUT = ", and 2-12, 20-59 and the days of a month spelled out"
"""Part of the caption for target languages with a list of number words."""


def copies_and_numbers(finished: FinishedExperiment, test: str) -> Table:
    """Measure copy accuracy, and recall, precision and F1 of numbers, one row per run.

    Args:
        finished: the experiment.
        test: name of the test set.
    """
    pairs = finished.corpus.splits[test]
    training_words = {word for line in training_pairs(finished).src for word in extract_words(line)}
    references = [extract_words(line) for line in pairs.tgt]
    sources = (extract_words(line) for line in pairs.src)
    to_copy = [copied_words(src, tgt, training_words) for src, tgt in zip(sources, references, strict=True)]
    spelled = spelled_numbers(finished.corpus.tgt_lang)
    reference_numbers = [find_numbers(line, spelled) for line in references]
    rows = []
    for run in finished.runs:
        outputs = [extract_words(line) for line in run.outputs[test]]
        copies = count_matches(outputs, to_copy)
        numbers = count_matches([find_numbers(line, spelled) for line in outputs], reference_numbers)
        names = {"label": run.result.label, "seed": run.result.seed}
        figures = {
            "copies": copies.ref,
            "copied_percent": copies.percentages()["recall_percent"],
            "numbers": numbers.ref,
        }
        rows.append(names | figures | numbers.percentages("number_"))
    return Table(CAPTION.format(test=test, spelled=SPELLED_OUT if spelled else ""), rows)


def copied_words(source: Words, reference: Words, training_words: Container[str]) -> list[str]:
    """List the names and numbers that occur in both source and reference.

    A word with a capital is a name unless its lower-case form occurs in training, because any word is
    capitalised at the start of a sentence.

    Args:
        source: words of the source sentence.
        reference: words of its reference.
        training_words: words of the source side of training.

    Returns:
        Each word as often as it occurs in both.
    """
    shared = Counter(source) & Counter(reference)
    return [word for word in shared.elements() if _is_name(word, training_words) or _has_digit(word)]


def find_numbers(line: Words, spelled: Container[str]) -> list[str]:
    """List the words that contain a digit or are in ``spelled``, in lower case."""
    lowercased = (word.lower() for word in line)
    return [word for word in lowercased if _has_digit(word) or word in spelled]


def _is_name(word: str, training_words: Container[str]) -> bool:
    return any(map(str.isupper, word)) and word.lower() not in training_words


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))
