"""Rendering of trees in English."""

from data.grammar.lexicon import BE, PRONOUNS, Verb
from data.grammar.trees import (
    Clause,
    Nominal,
    NounPhrase,
    Pair,
    PrepPhrase,
    Pronoun,
    Sentence,
    Subordinate,
    Token,
    fixed_tokens,
    marker_tags,
    person_of,
    tag,
)

ENGLISH = 0


def english(sentence: Sentence) -> list[Token]:
    """Render a sentence in English; its first letter is not yet upper case."""
    sign = tag(sentence, "sign")
    tokens = []
    if sentence.before is not None:
        tokens += [*_subordinate(sentence.before), Token(",", (tag(sentence, "comma"),))]
    tokens += _clause(sentence.main, asks=sentence.asks)
    for after in sentence.after:
        tokens += _subordinate(after)
    if sentence.second is not None:
        tokens += [Token(",", (sign,)), *fixed_tokens(sentence.conjunction, ENGLISH)]
        return tokens + english(sentence.second)
    return [*tokens, Token("?" if sentence.asks else ".", (sign,))]


def _subordinate(subordinate: Subordinate) -> list[Token]:
    return fixed_tokens(subordinate.conjunction, ENGLISH) + _clause(subordinate.clause)


def _clause(clause: Clause, asks: bool = False) -> list[Token]:
    inverted = asks and clause.front != "subject"
    parts = _parts(clause)
    fronted = parts.pop(clause.front, [])
    subject = [] if clause.subject is None else _nominal(clause.subject, False)
    auxiliary, verb = _verbs(clause, inverted)
    opening = [*auxiliary, *subject] if inverted else [*subject, *auxiliary]
    complement = [] if clause.complement is None else _subordinate(clause.complement)
    return [*fronted, *opening, *verb, *(token for part in parts.values() for token in part), *complement]


def _parts(clause: Clause) -> dict[str, list[Token]]:
    verb, predicate, recipient = clause.verb, clause.predicate, clause.recipient
    objects, particle = {}, {}
    if clause.object is not None:
        # The preposition of the verb is linked to the German one, or else to the verb.
        link = tag(clause, "relation" if verb.de_relation else "verb")
        relation = [Token(verb.relation, (link,))] if verb.relation else []
        objects = {"object": relation + _nominal(clause.object, True, governed=bool(relation))}
    if verb.particle:
        particle = {"particle": [Token(verb.particle, (tag(clause, "verb"),))]}
    # picks up the key, picks it up
    parts = objects | particle if isinstance(clause.object, Pronoun) else particle | objects
    if recipient is not None:
        to = Token("to", marker_tags(recipient))
        parts["recipient"] = [to, *_nominal(recipient, True, governed=True)]
    if predicate is not None:
        adjective = Token(predicate.adjective.en, (tag(predicate, "adjective"),))
        parts["predicate"] = [*fixed_tokens(predicate.degree, ENGLISH), adjective]
    return parts | {
        "direction": _prep_phrase(clause.direction),
        "manner": fixed_tokens(clause.manner, ENGLISH),
        "location": _prep_phrase(clause.location),
        "times": fixed_tokens(clause.times, ENGLISH),
        "question": fixed_tokens(clause.question, ENGLISH),
    }


def _verbs(clause: Clause, inverted: bool) -> tuple[list[Token], list[Token]]:
    """Render the auxiliary, which precedes the subject in questions, and the verbs after the subject."""
    verb, tense = clause.verb, clause.tense
    finite, main, negation = tag(clause, "finite"), tag(clause, "verb"), tag(clause, "not")
    base = Token(verb.en, (main,))
    frequency = fixed_tokens(clause.frequency, ENGLISH)
    if clause.subject is None:
        return [], [*frequency, Token("to", (tag(clause, "zu"),)), base]
    person = person_of(clause.subject)
    form = Token(_finite(verb, tense, person), (finite, main))
    wants = [Token("want", (finite,)), Token("to", (finite,)), base]
    if verb is BE and tense in ("present", "past"):
        auxiliary, rest = [form], []
    elif tense not in ("present", "past", "want"):
        auxiliary, rest = [Token(tense, (finite,))], [base]
    elif clause.negated or inverted:
        do = "did" if tense == "past" else "does" if person == "3s" else "do"
        auxiliary, rest = [Token(do, (finite,))], wants if tense == "want" else [base]
    elif tense == "want":
        auxiliary, rest = [], [Token("wants" if person == "3s" else "want", (finite,)), *wants[1:]]
    else:
        auxiliary, rest = [], [form]
    rest = frequency + rest
    if clause.negated and tense == "can" and not inverted:
        return [Token("cannot", (finite, negation))], rest
    if clause.negated and inverted:
        return auxiliary, [Token("not", (negation,)), *rest]
    return auxiliary + ([Token("not", (negation,))] if clause.negated else []), rest


def _finite(verb: Verb, tense: str, person: str) -> str:
    """Return a form of the simple past, or else of the present."""
    if tense == "past":
        return "were" if verb is BE and person in ("2s", "p") else verb.past
    if verb is BE and person != "3s":
        return "am" if person == "1s" else "are"
    return verb.he if person == "3s" else verb.en


def _prep_phrase(phrase: PrepPhrase | None) -> list[Token]:
    if phrase is None:
        return []
    words = [Token(word, (tag(phrase, "preposition"),)) for word in phrase.preposition.en.split()]
    return words + _nominal(phrase.nominal, True, governed=True)


def _nominal(nominal: Nominal, oblique: bool, governed: bool = False) -> list[Token]:
    """Render a nominal that is not the subject (``oblique``) or follows a preposition (``governed``)."""
    if isinstance(nominal, Pair):
        left, right = _nominal(nominal.left, oblique), _nominal(nominal.right, oblique)
        return [*left, Token("and", (tag(nominal, "and"),)), *right]
    if isinstance(nominal, NounPhrase):
        return _noun_phrase(nominal)
    if isinstance(nominal, Pronoun):
        form = PRONOUNS[nominal.en].object if oblique else nominal.en
    elif "person" in nominal.noun.kinds:
        form = "whom" if oblique else "who"
    else:
        form = "which" if governed else "that"
    return [Token(form, (tag(nominal, "pronoun"),))]


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
    tokens += _prep_phrase(phrase.modifier)
    if phrase.relative is not None:
        tokens += _clause(phrase.relative)
    return tokens


def _determiner(phrase: NounPhrase, following: str) -> str:
    if phrase.det == "a" and following[0] in "aeiou":
        return "an"
    return "these" if phrase.det == "this" and phrase.plural else phrase.det
