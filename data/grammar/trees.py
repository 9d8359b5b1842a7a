"""Syntax trees; both languages are rendered from the same tree.

The identity of a node tags the words that realise it, and two words with a common tag are linked in the
gold alignment. Therefore a node must occur only once in one tree: build a new node instead of using one
twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from data.grammar.lexicon import PRONOUNS, Adjective, Noun, Preposition, Verb

TreeTag = tuple[int, str]
"""(identity of a node, role of the word in it)."""


@dataclass(frozen=True, eq=False, slots=True)
class Fixed:
    """An uninflected phrase, in chunks (English words, German words) whose words are all linked."""

    chunks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Pronoun:
    """A personal pronoun or the interrogative "who" or "what", given by its English nominative."""

    en: str


@dataclass(frozen=True, eq=False, slots=True)
class Gap:
    """The part of a relative clause that is realised by the relative pronoun, which stands for ``noun``."""

    noun: Noun
    plural: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class NounPhrase:
    """Determiner, number, adjectives and noun, then a genitive, a modifier or a relative clause.

    ``det`` is a key of ``lexicon.DETERMINERS``; "whose" refers to ``owner``.
    """

    noun: Noun
    det: str = "the"
    plural: bool = False
    number: Fixed | None = None
    adjectives: tuple[Adjective, ...] = ()
    of: NounPhrase | None = None
    modifier: PrepPhrase | None = None
    relative: Clause | None = None
    owner: Gap | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Pair:
    """Two noun phrases joined by "and"; as a subject it takes a plural verb."""

    left: NounPhrase
    right: NounPhrase


Nominal = NounPhrase | Pronoun | Pair | Gap


@dataclass(frozen=True, eq=False, slots=True)
class PrepPhrase:
    """A preposition and the nominal that it governs."""

    preposition: Preposition
    nominal: Nominal


@dataclass(frozen=True, eq=False, slots=True)
class Predicate:
    """A predicative adjective with "very", or with a measure such as "forty two years"."""

    adjective: Adjective
    degree: Fixed | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Subordinate:
    """A clause after a conjunction or a question adverb, or an infinitive clause: "(in order) to ..."."""

    conjunction: Fixed | None
    clause: Clause


@dataclass(frozen=True, eq=False, slots=True)
class Clause:
    """The parts of a clause, without word order.

    ``tense`` is "present", "past" or a key of ``lexicon.AUXILIARIES``. ``front`` names the part that comes
    first: subject, object, recipient, location, times or question. An infinitive clause has no subject; in
    a relative clause the part in front is a Gap, or a subject with the determiner "whose".
    """

    subject: Nominal | None
    verb: Verb
    tense: str = "present"
    negated: bool = False
    object: Nominal | None = None
    recipient: Nominal | None = None
    predicate: Predicate | None = None
    frequency: Fixed | None = None
    direction: PrepPhrase | None = None
    manner: Fixed | None = None
    location: PrepPhrase | None = None
    times: Fixed | None = None
    question: Fixed | None = None
    complement: Subordinate | None = None
    front: str = "subject"


@dataclass(frozen=True, eq=False, slots=True)
class Sentence:
    """A main clause with subordinate clauses before and after it, optionally ", and" another sentence."""

    main: Clause
    asks: bool = False
    before: Subordinate | None = None
    after: tuple[Subordinate, ...] = ()
    conjunction: Fixed | None = None
    second: Sentence | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A word or punctuation character of one language, with the tags of the parts that it realises."""

    text: str
    tags: tuple[TreeTag, ...] = ()


def tag(node: object, role: str) -> TreeTag:
    """Make the tag of the words that realise ``role`` of ``node``, in both languages."""
    return id(node), role


def fixed_tokens(phrase: Fixed | None, side: int) -> list[Token]:
    """Render a fixed phrase in English (side 0) or German (side 1)."""
    if phrase is None:
        return []
    return [
        Token(word, (tag(phrase, str(number)),))
        for number, chunk in enumerate(phrase.chunks)
        for word in chunk[side].split()
    ]


def grammatical_gender(nominal: NounPhrase | Gap) -> str:
    """Return "m", "f", "n" or, for any plural, "p"."""
    return "p" if nominal.plural else nominal.noun.gender


def person_of(nominal: Nominal) -> str:
    """Return the person of a verb with this subject."""
    if isinstance(nominal, Pronoun):
        return PRONOUNS[nominal.en].person
    return "p" if isinstance(nominal, Pair) or nominal.plural else "3s"


def marker_tags(nominal: Nominal) -> tuple[TreeTag, ...]:
    """Return the tags of an English "to" or "of": those of the German word that shows the case."""
    if isinstance(nominal, Pair):
        return marker_tags(nominal.left)
    if isinstance(nominal, NounPhrase):
        return (tag(nominal, "determiner" if nominal.det else "noun"),)
    return (tag(nominal, "pronoun"),)
