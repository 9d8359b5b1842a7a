"""Whether names and numbers are copied from the source, and numbers translated."""

from collections import Counter
from collections.abc import Container

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.quality.rare_words import Words, count_matches
from compare.analysis.quality.texts import extract_words, training_pairs
from compare.analysis.table import Table
from data.grammar.numerals import number_words, ordinal_words

SPELLED = (*range(2, 13), *range(20, 60))
"""Numbers that count when they are spelled out; "one" is a pronoun too."""
CAPTION = (
    "Copies: words of {test} that stand in source and reference alike and hold a digit, or a capital though "
    "training never has them in small letters; the share that stands in the translation. Numbers: words with "
    "a digit{spelled}; recall, precision and F1 against the reference, sentence by sentence."
)
SPELLED_OUT = ", and 2-12, 20-59 and the days of a month spelled out"
LANGUAGES = {"en": 0, "de": 1}
"""The place of each language in what the grammar says of a number."""


def copies_and_numbers(finished: FinishedExperiment, test: str) -> Table:
    """Copy accuracy, and recall, precision and F1 of numbers, one row a run."""
    pairs = finished.corpus.splits[test]
    common = {word for line in training_pairs(finished).src for word in extract_words(line)}
    references = [extract_words(line) for line in pairs.tgt]
    sources = (extract_words(line) for line in pairs.src)
    copied = [copied_words(src, tgt, common) for src, tgt in zip(sources, references, strict=True)]
    spelled = spelled_numbers(finished.corpus.tgt_lang)
    wanted = [find_numbers(line, spelled) for line in references]
    rows = []
    for run in finished.runs:
        outputs = [extract_words(line) for line in run.outputs[test]]
        names = count_matches(outputs, copied)
        figures = count_matches([find_numbers(line, spelled) for line in outputs], wanted)
        about = {"label": run.result.label, "seed": run.result.seed}
        counts = {
            "copies": names.ref,
            "copied_percent": names.percentages()["recall_percent"],
            "numbers": figures.ref,
        }
        rows.append(about | counts | figures.percentages("number_"))
    return Table(CAPTION.format(test=test, spelled=SPELLED_OUT if spelled else ""), rows)


def copied_words(source: Words, reference: Words, common: Container[str]) -> list[str]:
    """The names and numbers of ``source`` that stand in ``reference`` too, as often as in both.

    A word with a capital is a name unless its small form is in ``common``: at the start of a sentence
    everything has one.
    """
    shared = Counter(source) & Counter(reference)
    return [word for word in shared.elements() if _is_name(word, common) or _has_digit(word)]


def find_numbers(line: Words, spelled: Container[str]) -> list[str]:
    """The words with a digit and those in ``spelled``, in small letters."""
    small = (word.lower() for word in line)
    return [word for word in small if _has_digit(word) or word in spelled]


def spelled_numbers(language: str) -> frozenset[str]:
    """The words of ``SPELLED`` and of the days of a month as the embedded grammar says them, and hyphenated.

    None in a language that the grammar does not speak.
    """
    if language not in LANGUAGES:
        return frozenset()
    side = LANGUAGES[language]
    said = [forms[side].split() for forms in (*map(number_words, SPELLED), *map(ordinal_words, range(1, 32)))]
    one = number_words(1)[side]  # of "twenty one"
    return frozenset(word for parts in said for word in (*parts, "-".join(parts)) if word != one)


def _is_name(word: str, common: Container[str]) -> bool:
    return any(map(str.isupper, word)) and word.lower() not in common


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))
