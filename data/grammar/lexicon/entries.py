"""What the lexicon knows of a word, by its part of speech.

Kinds are the selectional classes of nouns: a verb or a preposition names the kinds it goes with, so that
sentences make some sense.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun; ``gender`` is m, f or n; a mass noun or name has no plural (its plural is "")."""

    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str
    kinds: frozenset[str]

    @property
    def weak(self) -> bool:
        """Whether it is of the n-declension: der Junge, den Jungen."""
        return "weak" in self.kinds


class Adjective(NamedTuple):
    """An adjective; of two, the one of lower ``rank`` comes first, and equal ranks do not go together."""

    en: str
    de: str
    rank: int
    kinds: frozenset[str]


class Preposition(NamedTuple):
    """A preposition with the German case it governs here and the kinds of nouns it goes with."""

    en: str
    de: str
    case: str
    kinds: frozenset[str]


class Verb(NamedTuple):
    """A verb and its frame.

    ``particle`` is a movable English particle (picks him up), ``relation`` a fixed one (waits for him).
    ``prefix`` is the separable German prefix, ``er`` the third person without it, ``participle`` whole.
    ``de_relation`` is the preposition before a German object, ``case`` the case of that object.
    ``frame``: none, object, recipient (object + dative), direction, put (object + direction), that, zu.
    """

    en: str
    past: str
    particle: str
    relation: str
    prefix: str
    de: str
    er: str
    participle: str
    sein: bool
    frame: str
    case: str
    de_relation: str
    subjects: frozenset[str]
    objects: frozenset[str]


def parse_kinds(text: str) -> frozenset[str]:
    """Read the kinds of a table's entry: "room+big"."""
    return frozenset(text.split("+"))
