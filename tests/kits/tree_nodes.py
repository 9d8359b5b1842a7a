"""Parts for building trees by hand: words of the lexicon by their English, short names of the nodes."""

from data.grammar import lexicon as lex
from data.grammar.lexicon import Adjective, Noun, Preposition, Verb
from data.grammar.phrases import number_words
from data.grammar.trees import (
    Clause,
    Fixed,
    Gap,
    NounPhrase,
    Predicate,
    PrepPhrase,
    Pronoun,
    Relative,
    Sentence,
    Subordinate,
)


def noun(en: str) -> Noun:
    return next(entry for entry in lex.NOUNS if entry.en == en)


def adj(en: str) -> Adjective:
    return next(entry for entry in lex.ADJECTIVES if entry.en == en)


def verb(en: str, particle: str = "") -> Verb:
    return next(entry for entry in lex.VERBS if (entry.en, entry.particle) == (en, particle))


def np(
    en: str, det: str = "the", *adjectives: str, plural: bool = False, number: int = 0, **parts: object
) -> NounPhrase:
    counted = Fixed((number_words(number),)) if number else None
    described = tuple(adj(word) for word in adjectives)
    return NounPhrase(noun(en), det, plural, counted, described, **parts)  # type: ignore[arg-type]


def rel(subject: object, en: str, tense: str = "present", particle: str = "", **parts: object) -> Relative:
    front = next((name for name in ("object", "recipient", "place") if holds_gap(parts.get(name))), "subject")
    return Relative(Clause(subject, verb(en, particle), tense, front=front, **parts))  # type: ignore[arg-type]


def holds_gap(part: object) -> bool:
    return isinstance(part, Gap) or (isinstance(part, PrepPhrase) and isinstance(part.nominal, Gap))


def pp(preposition: Preposition, phrase: NounPhrase | Gap) -> PrepPhrase:
    return PrepPhrase(preposition, phrase)


def prep(en: str, case: str) -> Preposition:
    tables = [*lex.PLACES, *lex.DIRECTIONS, *lex.TARGETS, lex.WITH, lex.WITHOUT, lex.FROM, lex.FOR]
    return next(entry for entry in tables if (entry.en, entry.case) == (en, case))


def cl(subject: object, en: str, tense: str = "present", particle: str = "", **parts: object) -> Clause:
    return Clause(subject, verb(en, particle), tense, **parts)  # type: ignore[arg-type]


def be(
    subject: object, adjective: str, tense: str = "present", degree: Fixed | None = None, **parts: object
) -> Clause:
    return Clause(subject, lex.BE, tense, predicate=Predicate(adj(adjective), degree), **parts)  # type: ignore[arg-type]


def fixed(en: str, de: str) -> Fixed:
    return Fixed(((en, de),))


def sub(en: str, de: str, clause: Clause) -> Subordinate:
    return Subordinate(fixed(en, de), clause)


def say(main: Clause, **parts: object) -> Sentence:
    return Sentence(main, **parts)  # type: ignore[arg-type]


def pro(en: str) -> Pronoun:
    return Pronoun(en)
