"""Numbers spelled out in English and German, for any corpus with one of these target languages.

The words are ordinary English and German. The list is that of the built-in corpus' grammar, to avoid a second
one; nothing else here depends on that corpus.
"""

from data.grammar.numerals import number_words, ordinal_words

LANGUAGES = {"en": 0, "de": 1}
"""Languages with a list of number words, and their index in the (English, German) pairs of the grammar."""
CARDINALS = (*range(2, 13), *range(20, 60))
"""The grammar's cardinals except 1, because "one" is also a pronoun."""
ORDINALS = range(1, 32)
"""Days of a month."""


def spelled_numbers(language: str) -> frozenset[str]:
    """Return the lower-case words for ``CARDINALS`` and ``ORDINALS`` in a language.

    Args:
        language: code of the language.

    Returns:
        The single words and, for numbers of several words, the hyphenated form: "twenty", "two" and
        "twenty-two". Empty for a language that is not in ``LANGUAGES``.
    """
    if language not in LANGUAGES:
        return frozenset()
    side = LANGUAGES[language]
    numbers = (*map(number_words, CARDINALS), *map(ordinal_words, ORDINALS))
    parts_of_numbers = [number[side].split() for number in numbers]
    one = number_words(1)[side]  # part of "twenty one"
    return frozenset(word for parts in parts_of_numbers for word in (*parts, "-".join(parts)) if word != one)
