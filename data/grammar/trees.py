"""The abstract syntax that English and German share; both sides are read off the same tree.

A node stands in one place of one tree: its identity tags the words that realise it, and two words with
a tag in common are a gold alignment link. Build each node anew instead of using it twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from .inflection import PRONOUNS
from .lexicon import Adjective, Noun, Preposition, Verb

TreeTag = tuple[int, str]
"""(identity of a node, role of the word in it)."""


@dataclass(frozen=True, eq=False, slots=True)
class Fixed:
    """A phrase said as it stands, in chunks (English words, German words) that align as wholes."""

    chunks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Pronoun:
    """A personal pronoun, or the questions' "who" and "what", by its English nominative."""

    en: str


@dataclass(frozen=True, eq=False, slots=True)
class Gap:
    """The place in a relative clause that its pronoun fills."""


@dataclass(frozen=True, eq=False, slots=True)
class NounPhrase:
    """Determiner, number, adjectives and noun, then at most a genitive, a modifier, a relative clause.

    ``det`` is a key of ``lexicon.DETERMINERS``; "whose" refers to the noun a relative clause belongs to.
    """

    noun: Noun
    det: str = "the"
    plural: bool = False
    number: Fixed | None = None
    adjectives: tuple[Adjective, ...] = ()
    of: NounPhrase | None = None
    modifier: PrepPhrase | None = None
    relative: Relative | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Pair:
    """Two noun phrases joined by "and"; plural as a subject."""

    left: NounPhrase
    right: NounPhrase


Nominal = NounPhrase | Pronoun | Pair | Gap


@dataclass(frozen=True, eq=False, slots=True)
class PrepPhrase:
    """A preposition and what it governs."""

    preposition: Preposition
    nominal: Nominal


@dataclass(frozen=True, eq=False, slots=True)
class Predicate:
    """A predicative adjective with "very", or with a measure such as "forty two years"."""

    adjective: Adjective
    degree: Fixed | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Relative:
    """A relative clause: somewhere in ``clause`` stands one Gap, or a subject with the determiner "whose"."""

    clause: Clause


@dataclass(frozen=True, eq=False, slots=True)
class Subordinate:
    """A clause after a conjunction or a question adverb: verb last in German."""

    conjunction: Fixed
    clause: Clause


@dataclass(frozen=True, eq=False, slots=True)
class Infinitive:
    """A clause without subject: "to ..." or, for a purpose, "in order to ..."."""

    clause: Clause
    purpose: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Clause:
    """A clause without its order; ``tense`` is "present", "past" or a key of ``lexicon.MODALS``.

    ``front`` names the part said first: subject, object, recipient, place, times or question.
    Only the clause of an ``Infinitive`` has no subject.
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
    place: PrepPhrase | None = None
    times: Fixed | None = None
    question: Fixed | None = None
    complement: Subordinate | Infinitive | None = None
    front: str = "subject"


@dataclass(frozen=True, eq=False, slots=True)
class Sentence:
    """A main clause with subordinate clauses before and after it, then perhaps ", and" another sentence."""

    main: Clause
    asks: bool = False
    before: Subordinate | None = None
    after: tuple[Subordinate | Infinitive, ...] = ()
    conjunction: Fixed | None = None
    second: Sentence | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A word or sign of one side, with the tags of what it realises."""

    text: str
    tags: tuple[TreeTag, ...] = ()


def tag(node: object, role: str) -> TreeTag:
    """Name the words that realise ``role`` of ``node``, on both sides."""
    return id(node), role


def fixed_tokens(phrase: Fixed | None, side: int) -> list[Token]:
    """Say a fixed phrase in English (side 0) or German (side 1)."""
    if phrase is None:
        return []
    return [
        Token(word, (tag(phrase, str(number)),))
        for number, chunk in enumerate(phrase.chunks)
        for word in chunk[side].split()
    ]


def grammatical_gender(phrase: NounPhrase) -> str:
    """Give m, f, n or, for any plural, p."""
    return "p" if phrase.plural else phrase.noun.gender


def person_of(nominal: Nominal, antecedent: NounPhrase | None) -> str:
    """Give the person a verb takes from this subject; ``antecedent`` is what a Gap stands for."""
    if isinstance(nominal, Pronoun):
        return PRONOUNS[nominal.en][1]
    if isinstance(nominal, Gap):
        assert antecedent is not None
        nominal = antecedent
    return "p" if isinstance(nominal, Pair) or nominal.plural else "3s"


def marker_tags(nominal: Nominal) -> tuple[TreeTag, ...]:
    """Tag an English "to" or "of" with what shows the case in German: the first word of the phrase."""
    if isinstance(nominal, Pair):
        return marker_tags(nominal.left)
    if isinstance(nominal, NounPhrase):
        return (tag(nominal, "determiner" if nominal.det else "noun"),)
    return (tag(nominal, "pronoun"),)


def relative_front(clause: Clause) -> str:
    """Name the part of a relative clause that holds its pronoun."""
    for part in ("object", "recipient", "place", "direction"):
        value = getattr(clause, part)
        if isinstance(value, Gap) or (isinstance(value, PrepPhrase) and isinstance(value.nominal, Gap)):
            return part
    return "subject"
