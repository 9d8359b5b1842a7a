"""Types of the entries of the lexicon, one per part of speech.

Kinds are the selectional classes of nouns: verbs and prepositions name the kinds that they allow, so that
sentences make some sense.
"""

from typing import NamedTuple


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


def parse_kinds(text: str) -> frozenset[str]:
    """Parse the kinds of an entry, such as "room+big"."""
    return frozenset(text.split("+"))
