"""Rendering of trees in English."""

from data.grammar.lexicon import BE
from data.grammar.trees import (
    PRONOUNS,
    Clause,
    Gap,
    Infinitive,
    Nominal,
    NounPhrase,
    Pair,
    PrepPhrase,
    Pronoun,
    Sentence,
    Subordinate,
    Token,
    english_past,
    english_present,
    fixed_tokens,
    marker_tags,
    person_of,
    relative_front,
    tag,
)

ENGLISH = 0
PARTS = ("object", "recipient", "predicate", "direction", "manner", "place", "times")
"""The parts of a clause that follow the verb, in order."""


def english(sentence: Sentence) -> list[Token]:
    """Render a sentence in English; its first letter is not yet upper case."""
    sign = tag(sentence, "sign")
    tokens = []
    if sentence.before is not None:
        tokens += [*_subordinate(sentence.before), Token(",", (tag(sentence, "comma"),))]
    tokens += _clause(sentence.main, asks=sentence.asks)
    for after in sentence.after:
        tokens += _infinitive(after) if isinstance(after, Infinitive) else _subordinate(after)
    if sentence.second is not None:
        tokens += [Token(",", (sign,)), *fixed_tokens(sentence.conjunction, ENGLISH)]
        return tokens + english(sentence.second)
    return [*tokens, Token("?" if sentence.asks else ".", (sign,))]


def _subordinate(subordinate: Subordinate) -> list[Token]:
    return fixed_tokens(subordinate.conjunction, ENGLISH) + _clause(subordinate.clause)


def _infinitive(infinitive: Infinitive) -> list[Token]:
    purpose = tag(infinitive, "purpose")
    opening = [Token("in", (purpose,)), Token("order", (purpose,))] if infinitive.purpose else []
    return opening + _clause(infinitive.clause)


def _clause(clause: Clause, asks: bool = False, antecedent: NounPhrase | None = None) -> list[Token]:
    front = relative_front(clause) if antecedent is not None else clause.front
    inverted = asks and front != "subject"
    parts = {name: _part(clause, name, antecedent) for name in PARTS}
    parts["question"] = fixed_tokens(clause.question, ENGLISH)
    subject = [] if clause.subject is None else _nominal(clause.subject, False, antecedent)
    auxiliary, verb = _verbs(clause, inverted, antecedent)
    fronted = parts.pop(front, [])
    opening = [*auxiliary, *subject] if inverted else [*subject, *auxiliary]
    rest = [token for name in PARTS for token in parts.get(name, [])]
    if clause.verb.particle:
        rest = _with_particle(clause, rest, parts.get("object", []))
    return [*fronted, *opening, *verb, *rest, *_complement(clause)]


def _with_particle(clause: Clause, rest: list[Token], object_tokens: list[Token]) -> list[Token]:
    """Insert the particle before a noun object, but after a pronoun: picks up the key, picks it up."""
    position = len(object_tokens) if isinstance(clause.object, Pronoun) else 0
    return [*rest[:position], Token(clause.verb.particle, (tag(clause, "verb"),)), *rest[position:]]


def _complement(clause: Clause) -> list[Token]:
    if clause.complement is None:
        return []
    if isinstance(clause.complement, Infinitive):
        return _infinitive(clause.complement)
    return _subordinate(clause.complement)


def _verbs(clause: Clause, inverted: bool, antecedent: NounPhrase | None) -> tuple[list[Token], list[Token]]:
    """Render the auxiliary, which precedes the subject in questions, and the verbs after the subject."""
    verb, tense = clause.verb, clause.tense
    finite, main, negation = tag(clause, "finite"), tag(clause, "verb"), tag(clause, "not")
    base = Token(verb.en, (main,))
    if clause.subject is None:
        return [], [*fixed_tokens(clause.frequency, ENGLISH), Token("to", (tag(clause, "zu"),)), base]
    person = person_of(clause.subject, antecedent)
    wants = [Token("want", (finite,)), Token("to", (finite,)), base]
    if verb is BE and tense in ("present", "past"):
        form = english_past(verb, person) if tense == "past" else english_present(verb, person)
        auxiliary, rest = [Token(form, (finite, main))], []
    elif tense not in ("present", "past", "want"):
        auxiliary, rest = [Token(tense, (finite,))], [base]
    elif clause.negated or inverted:
        do = "did" if tense == "past" else "does" if person == "3s" else "do"
        auxiliary, rest = [Token(do, (finite,))], wants if tense == "want" else [base]
    elif tense == "want":
        auxiliary, rest = [], [Token("wants" if person == "3s" else "want", (finite,)), *wants[1:]]
    else:
        form = english_past(verb, person) if tense == "past" else english_present(verb, person)
        auxiliary, rest = [], [Token(form, (finite, main))]
    rest = fixed_tokens(clause.frequency, ENGLISH) + rest
    if clause.negated and tense == "can" and not inverted:
        return [Token("cannot", (finite, negation))], rest
    if clause.negated and inverted:
        return auxiliary, [Token("not", (negation,)), *rest]
    return auxiliary + ([Token("not", (negation,))] if clause.negated else []), rest


def _part(clause: Clause, name: str, antecedent: NounPhrase | None) -> list[Token]:
    if name == "object" and clause.object is not None:
        return _relation(clause) + _nominal(clause.object, True, antecedent, bool(clause.verb.relation))
    if name == "recipient" and clause.recipient is not None:
        recipient = _nominal(clause.recipient, True, antecedent, True)
        return [Token("to", marker_tags(clause.recipient)), *recipient]
    if name == "predicate" and clause.predicate is not None:
        adjective = Token(clause.predicate.adjective.en, (tag(clause.predicate, "adjective"),))
        measure = fixed_tokens(clause.predicate.degree, ENGLISH)
        return [*measure, adjective]
    if name == "direction":
        return _prep_phrase(clause.direction, antecedent)
    if name == "place":
        return _prep_phrase(clause.place, antecedent)
    if name == "manner":
        return fixed_tokens(clause.manner, ENGLISH)
    return fixed_tokens(clause.times, ENGLISH) if name == "times" else []


def _relation(clause: Clause) -> list[Token]:
    """Render the preposition of the verb; it is linked to the German one, or else to the verb."""
    if not clause.verb.relation:
        return []
    return [Token(clause.verb.relation, (tag(clause, "relation" if clause.verb.de_relation else "verb"),))]


def _prep_phrase(phrase: PrepPhrase | None, antecedent: NounPhrase | None) -> list[Token]:
    if phrase is None:
        return []
    words = phrase.preposition.en.split()
    nominal = _nominal(phrase.nominal, True, antecedent, True)
    return [Token(word, (tag(phrase, "preposition"),)) for word in words] + nominal


def _nominal(
    nominal: Nominal, oblique: bool, antecedent: NounPhrase | None, governed: bool = False
) -> list[Token]:
    """Render a nominal that is not the subject (``oblique``) or follows a preposition (``governed``)."""
    if isinstance(nominal, Pronoun):
        form = PRONOUNS[nominal.en][0] if oblique else nominal.en
        return [Token(form, (tag(nominal, "pronoun"),))]
    if isinstance(nominal, Gap):
        assert antecedent is not None
        if "person" in antecedent.noun.kinds:
            form = "whom" if oblique else "who"
        else:
            form = "which" if governed else "that"
        return [Token(form, (tag(nominal, "pronoun"),))]
    if isinstance(nominal, Pair):
        left, right = (_nominal(part, oblique, antecedent) for part in (nominal.left, nominal.right))
        return [*left, Token("and", (tag(nominal, "and"),)), *right]
    return _noun_phrase(nominal)


def _noun_phrase(phrase: NounPhrase) -> list[Token]:
    tokens = fixed_tokens(phrase.number, ENGLISH)
    tokens += [
        Token(adjective.en, (tag(phrase, f"adjective{i}"),)) for i, adjective in enumerate(phrase.adjectives)
    ]
    tokens.append(Token(phrase.noun.en_plural if phrase.plural else phrase.noun.en, (tag(phrase, "noun"),)))
    if phrase.det:
        tokens.insert(0, Token(_determiner(phrase, tokens[0].text), (tag(phrase, "determiner"),)))
    if phrase.of is not None:
        tokens += [Token("of", marker_tags(phrase.of)), *_noun_phrase(phrase.of)]
    tokens += _prep_phrase(phrase.modifier, None)
    if phrase.relative is not None:
        tokens += _clause(phrase.relative.clause, antecedent=phrase)
    return tokens


def _determiner(phrase: NounPhrase, following: str) -> str:
    if phrase.det == "a" and following[0] in "aeiou":
        return "an"
    return "these" if phrase.det == "this" and phrase.plural else phrase.det
