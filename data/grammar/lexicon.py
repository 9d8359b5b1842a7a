"""Lexicon of the embedded grammar: English words and their German translations, with their inflection.

The words stand in the TSV files of the folder ``lexicon``, one entry per line, "-" for what an entry lacks.

An English form has only one German translation: verbs whose past equals their base form are not used in the
past, "you" is always "du", "know" is always "wissen". Earlier entries of a file are drawn more often.
"""

from itertools import groupby
from pathlib import Path
from typing import NamedTuple

# Types of the entries of the lexicon, one per part of speech.
#
# Kinds are the selectional classes of nouns: verbs and prepositions name the kinds that they allow, so that
# sentences make some sense.


class Noun(NamedTuple):
    """A noun; ``gender`` is "m", "f" or "n"; the plural of a mass noun or a name is ""."""

    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str
    kinds: frozenset[str]

    @property
    def weak(self) -> bool:
        """Whether the noun belongs to the n-declension: der Junge, den Jungen."""
        return "weak" in self.kinds


class Adjective(NamedTuple):
    """An adjective; of two, the one of lower ``rank`` comes first, and equal ranks are not combined."""

    en: str
    de: str
    rank: int
    kinds: frozenset[str]


class Preposition(NamedTuple):
    """A preposition with the case that it governs in German and the kinds of nouns that it allows."""

    en: str
    de: str
    case: str
    kinds: frozenset[str]


class Verb(NamedTuple):
    """A verb with its forms and its arguments."""

    en: str
    past: str
    particle: str
    """Movable English particle: picks him *up*."""
    relation: str
    """English preposition before the object: waits *for* him."""
    prefix: str
    """Separable German prefix."""
    de: str
    """German infinitive without the prefix."""
    er: str
    """German third person singular without the prefix."""
    participle: str
    """German past participle with the prefix."""
    sein: bool
    """Whether the German perfect is formed with "sein"."""
    frame: str
    """Its arguments: none, object, recipient (object and dative), direction, put (object and direction), be.

    Verbs with a complement clause: that, whether, zu.
    """
    case: str
    """Case of the German object."""
    de_relation: str
    """Preposition before the German object."""
    subjects: frozenset[str]
    """Kinds of nouns that the verb allows as subject."""
    objects: frozenset[str]
    """Kinds of nouns that the verb allows as object."""


def english_plural(noun: str) -> str:
    """Return the regular English plural: boxes, stories, dogs."""
    if noun.endswith(("s", "x", "ch", "sh")) or noun in ("potato", "tomato"):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def _read(name: str) -> list[list[str]]:
    """Read the entries of a TSV file, whose first line names the columns."""
    path = Path(__file__).with_suffix("") / f"{name}.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [["" if cell == "-" else cell for cell in line.split("\t")] for line in lines]


def _kinds(text: str) -> frozenset[str]:
    """Parse the kinds of an entry, such as "room+big"."""
    return frozenset(text.split("+") if text else ())


def _noun(en: str, irregular: str, gender: str, de: str, de_plural: str, kinds: str) -> Noun:
    en_plural = (irregular or english_plural(en)) if de_plural else ""
    return Noun(en, en_plural, gender, de, de_plural, _kinds(kinds))


def _verb(
    english: str,
    past: str,
    german: str,
    er: str,
    participle: str,
    frame: str,
    case: str,
    subjects: str,
    objects: str,
) -> Verb:
    """Make a verb of english[+particle][:relation] and [prefix|]german[:relation].

    Without ``er`` or ``participle`` it is regular: stem + t, ge + stem + t. "ist:" before the participle
    marks verbs with "sein" in the perfect.
    """
    base, _, particle = english.partition("+")
    en, _, relation = base.partition(":")
    prefix, _, infinitive = german.rpartition("|")
    de, _, de_relation = infinitive.partition(":")
    third = er or de.removesuffix("n").removesuffix("e") + "t"
    return Verb(
        en=en,
        past=past,
        particle=particle,
        relation=relation,
        prefix=prefix,
        de=de,
        er=third,
        participle=participle.removeprefix("ist:") or f"{prefix}ge{third}",
        sein=participle.startswith("ist:"),
        frame=frame,
        case=case or "-",
        de_relation=de_relation,
        subjects=_kinds(subjects),
        objects=_kinds(objects),
    )


def _prepositions(use: str) -> list[Preposition]:
    return [
        Preposition(en, de, case, _kinds(kinds))
        for each, en, de, case, kinds in _read("prepositions")
        if each == use
    ]


ADJECTIVES = [Adjective(en, de, int(rank), _kinds(kinds)) for en, de, rank, kinds in _read("adjectives")]
NOUNS = [_noun(*cells) for cells in _read("nouns")]
DETERMINERS = {en: (de, article, adjective) for en, de, article, adjective in _read("determiners")}
"""English (singular/plural) -> German stem, declension of the article, of the adjective after it."""
MODALS = {en: (ich, du, er, plural) for en, ich, du, er, plural in _read("modals")}
PLACES, DIRECTIONS, TARGETS = map(_prepositions, ("places", "directions", "targets"))
WITH, WITHOUT, FROM, FOR = (_prepositions(each)[0] for each in ("with", "without", "from", "for"))
BE = Verb("be", "", "", "", "", "sein", "ist", "gewesen", True, "be", "-", "", frozenset(), frozenset())
_ALL_VERBS = [_verb(*cells) for cells in _read("verbs")]
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
