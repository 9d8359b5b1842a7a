"""Lexicon of the embedded grammar: English words and their German translations, with their inflection.

All stands in the TSV files of the folder ``lexicon``, one entry per line, "-" for what an entry lacks.

An English form has only one German translation: verbs whose past equals their base form are not used in the
past, "you" is always "du", "know" is always "wissen". Earlier entries of a file are drawn more often.

A gender is "m", "f", "n" or, in the plural, "p". A case is "nom", "acc", "dat" or "gen". A person is "1s",
"2s", "3s" or "p": German verbs have the same form in the first and third person plural, and the grammar has
no second person plural. Kinds are the selectional classes of nouns: verbs and prepositions name the kinds
that they allow, so that sentences make some sense.
"""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

CASES = ("nom", "acc", "dat", "gen")
PERSONS = {"1s": "ich", "2s": "du", "3s": "er", "p": "wir"}
"""The column of German forms for each person."""

Entry = TypeVar("Entry")


class Noun(NamedTuple):
    """A noun; the plural of a mass noun or a name is ""."""

    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str
    kinds: frozenset[str]

    @property
    def weak(self) -> bool:
        """True in the n-declension: der Junge, den Jungen."""
        return "weak" in self.kinds


class Pronoun(NamedTuple):
    """A pronoun."""

    en: str
    object: str
    person: str
    nom: str
    acc: str
    dat: str


class Determiner(NamedTuple):
    """A determiner, singular or plural; the declension of its endings, and of an adjective after it."""

    en: str
    stem: str
    declension: str
    adjective: str


class Adjective(NamedTuple):
    """An adjective; of two, the one of lower ``rank`` comes first, and equal ranks are not combined."""

    en: str
    de: str
    rank: int
    kinds: frozenset[str]


class Preposition(NamedTuple):
    """A preposition with the case that it governs in German and the kinds of nouns that it allows."""

    use: str
    en: str
    de: str
    case: str
    kinds: frozenset[str]


class Auxiliary(NamedTuple):
    """The German present forms of a modal or auxiliary verb; "will" is the future, werden."""

    en: str
    ich: str
    du: str
    er: str
    wir: str


class Verb(NamedTuple):
    """A verb with its forms and its arguments."""

    en: str
    he: str
    past: str
    particle: str
    """Movable English particle: picks him *up*."""
    relation: str
    """English preposition before the object: waits *for* him."""
    prefix: str
    """Separable German prefix; the infinitive and the forms of the present are without it."""
    de: str
    ich: str
    du: str
    er: str
    wir: str
    participle: str
    sein: bool
    """Whether the German perfect is formed with "sein"."""
    frame: str
    """Its arguments: none, object, recipient (object and dative), direction, put (object and direction), be.

    Verbs with a complement clause: that, whether, zu.
    """
    case: str
    de_relation: str
    """Preposition before the German object."""
    subjects: frozenset[str]
    """Kinds of nouns that the verb allows as subject."""
    objects: frozenset[str]


def _read(name: str) -> list[list[str]]:
    """Read the entries of a TSV file, whose first line names the columns."""
    path = Path(__file__).with_suffix("") / f"{name}.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [["" if cell == "-" else cell for cell in line.split("\t")] for line in lines]


def _kinds(text: str) -> frozenset[str]:
    return frozenset(text.split("+") if text else ())


def _entries(kind: Callable[..., Entry], name: str) -> list[Entry]:
    """Read a TSV file whose columns are the fields of ``kind``, in order."""
    parsers: list[Callable[[str], Any]] = [
        _kinds if hint == frozenset[str] else hint for hint in get_type_hints(kind).values()
    ]
    return [kind(*(parse(cell) for parse, cell in zip(parsers, row, strict=True))) for row in _read(name)]


NOUNS = _entries(Noun, "nouns")
PRONOUNS = {entry.en: entry for entry in _entries(Pronoun, "pronouns")}
DETERMINERS = {entry.en: entry for entry in _entries(Determiner, "determiners")}
ADJECTIVES = _entries(Adjective, "adjectives")
PARADIGMS = {
    (name, gender, case): form
    for name, gender, *forms in _read("paradigms")
    for case, form in zip(CASES, forms, strict=True)
}
"""German endings of determiners and adjectives, and relative pronouns."""
_PREPOSITIONS = _entries(Preposition, "prepositions")
PLACES, DIRECTIONS, TARGETS = (
    [entry for entry in _PREPOSITIONS if entry.use == use] for use in ("places", "directions", "targets")
)
WITH, WITHOUT, FROM, FOR = _PREPOSITIONS[-4:]
CONTRACTIONS = {(preposition, article): form for preposition, article, form in _read("contractions")}
AUXILIARIES = {entry.en: entry for entry in _entries(Auxiliary, "auxiliaries")}
*_ALL_VERBS, BE = _entries(Verb, "verbs")
VERBS = [verb for verb in _ALL_VERBS if "it" not in verb.subjects]
WEATHER = [verb for verb in _ALL_VERBS if "it" in verb.subjects]
(
    WORDS_BEFORE_VERB, MANNERS, DEGREES, CONJUNCTIONS, QUESTIONS, ANY_DAY, PAST_DAY, COMING_DAY, DAY_PARTS,
    WEEKDAYS, MONTHS, SEASONS, NUMBERS, TENS, ORDINALS,
) = (
    [(english, german) for _, english, german in rows]
    for _, rows in groupby(_read("words"), key=lambda row: row[0])
)  # fmt: skip
"""The uninflected words of each list, (english, german), in the file's order; "|" separates linked chunks."""
