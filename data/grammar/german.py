"""Rendering of trees in German."""

from data.grammar.lexicon import (
    AUXILIARIES,
    BE,
    CONTRACTIONS,
    DETERMINERS,
    PARADIGMS,
    PERSONS,
    PRONOUNS,
    Noun,
)
from data.grammar.trees import (
    Clause,
    Gap,
    Nominal,
    NounPhrase,
    Pair,
    PrepPhrase,
    Pronoun,
    Sentence,
    Subordinate,
    Token,
    fixed_tokens,
    grammatical_gender,
    person_of,
    tag,
)

GERMAN = 1
COMMA = Token(",")


def german(sentence: Sentence) -> list[Token]:
    """Render a sentence in German; its first letter is not yet upper case."""
    return tidy_commas(untidy_german(sentence))


def untidy_german(sentence: Sentence) -> list[Token]:
    """Render a sentence in German with a comma at each end of every subordinate clause."""
    sign = tag(sentence, "sign")
    tokens = []
    if sentence.before is not None:
        tokens += [*_subordinate(sentence.before), Token(",", (tag(sentence, "comma"),))]
    tokens += _clause(sentence.main, "second" if sentence.before is None else "first")
    for after in sentence.after:
        tokens += [COMMA, *_subordinate(after)]
    if sentence.second is not None:
        tokens += [Token(",", (sign,)), *fixed_tokens(sentence.conjunction, GERMAN)]
        return tokens + untidy_german(sentence.second)
    return [*tokens, Token("?" if sentence.asks else ".", (sign,))]


def tidy_commas(tokens: list[Token]) -> list[Token]:
    """Reduce adjacent commas to one, and remove those before the final punctuation."""
    tidy: list[Token] = []
    for token in tokens:
        if token.text in ",.?" and tidy[-1].text == ",":
            token = Token(token.text, tidy.pop().tags + token.tags)
        tidy.append(token)
    return tidy


def _subordinate(subordinate: Subordinate) -> list[Token]:
    return fixed_tokens(subordinate.conjunction, GERMAN) + _clause(subordinate.clause, "last")


def _clause(clause: Clause, order: str) -> list[Token]:
    """Render a clause; ``order`` is the position of its finite verb, "first", "second" or "last"."""
    parts = _middle_field(clause)
    fronted = parts.pop(clause.front, []) if order != "first" else []
    middle = [token for part in parts.values() for token in part]
    finite, closing = _verbs(clause, order == "last")
    if order == "last":
        tokens = [*fronted, *middle, *closing, *finite]
    else:
        tokens = [*fronted, *finite, *middle, *closing]
    return tokens if clause.complement is None else [*tokens, COMMA, *_subordinate(clause.complement), COMMA]


def _middle_field(clause: Clause) -> dict[str, list[Token]]:
    """Order the parts between the verbs: pronouns, time, dative, accusative, "nicht", manner, place."""
    target, recipient, predicate = clause.object, clause.recipient, clause.predicate
    object_tokens = _nominal(target, clause.verb.case)
    accusative, related = {"object": object_tokens}, {}
    dative = {"recipient": _nominal(recipient, "dat")}
    if clause.verb.de_relation:
        relation = Token(clause.verb.de_relation, (tag(clause, "relation"),))
        accusative, related = {}, {"object": _contracted(relation, target, object_tokens)}
    adjective = predicate and Token(predicate.adjective.de, (tag(predicate, "adjective"),))
    return {
        "question": fixed_tokens(clause.question, GERMAN),
        "subject": _nominal(clause.subject, "nom"),
        **(accusative if isinstance(target, Pronoun) else {}),  # an early part does not come again below
        **(dative if isinstance(recipient, Pronoun) else {}),
        "times": fixed_tokens(clause.times, GERMAN),
        "frequency": fixed_tokens(clause.frequency, GERMAN),
        **dative,
        **accusative,
        "not": [Token("nicht", (tag(clause, "not"),))] if clause.negated else [],
        "manner": fixed_tokens(clause.manner, GERMAN),
        "location": _prep_phrase(clause.location),
        **related,
        "direction": _prep_phrase(clause.direction),
        "predicate": [*fixed_tokens(predicate.degree, GERMAN), adjective] if predicate and adjective else [],
    }


def _verbs(clause: Clause, last: bool) -> tuple[list[Token], list[Token]]:
    """Render the finite verb, and the words at the end of the clause (participle, infinitive, prefix)."""
    verb, tense = clause.verb, clause.tense
    finite, main, zu = tag(clause, "finite"), tag(clause, "verb"), tag(clause, "zu")
    if clause.subject is None:
        if verb.prefix:
            return [], [Token(f"{verb.prefix}zu{verb.de}", (zu, main))]
        return [], [Token("zu", (zu,)), Token(verb.de, (main,))]
    form = finite_form(clause, person_of(clause.subject))
    if tense == "present":
        if last or not verb.prefix:
            return [Token(verb.prefix + form, (finite, main))], []
        return [Token(form, (finite, main))], [Token(verb.prefix, (main,))]
    if tense == "past" and verb is BE:
        return [Token(form, (finite, main))], []
    return [Token(form, (finite,))], [
        Token(verb.participle if tense == "past" else verb.prefix + verb.de, (main,))
    ]


def finite_form(clause: Clause, person: str) -> str:
    """Return the finite verb of a clause for a subject of this person, without its separable prefix."""
    verb, auxiliary = clause.verb, clause.tense
    if auxiliary == "past":
        auxiliary = "was" if verb is BE else "be" if verb.sein else "have"
    forms = verb if auxiliary == "present" else AUXILIARIES[auxiliary]
    return str(getattr(forms, PERSONS[person]))


def _prep_phrase(phrase: PrepPhrase | None) -> list[Token]:
    if phrase is None:
        return []
    preposition = Token(phrase.preposition.de, (tag(phrase, "preposition"),))
    return _contracted(preposition, phrase.nominal, _nominal(phrase.nominal, phrase.preposition.case))


def _contracted(preposition: Token, nominal: Nominal | None, tokens: list[Token]) -> list[Token]:
    contraction = CONTRACTIONS.get((preposition.text, tokens[0].text))
    if contraction is None or isinstance(nominal, Gap):
        return [preposition, *tokens]
    return [Token(contraction, preposition.tags + tokens[0].tags), *tokens[1:]]


def _nominal(nominal: Nominal | None, case: str) -> list[Token]:
    if nominal is None:
        return []
    if isinstance(nominal, Pair):
        left, right = _nominal(nominal.left, case), _nominal(nominal.right, case)
        return [*left, Token("und", (tag(nominal, "and"),)), *right]
    if isinstance(nominal, NounPhrase):
        return _noun_phrase(nominal, case)
    form = _relative(nominal, case) if isinstance(nominal, Gap) else getattr(PRONOUNS[nominal.en], case)
    return [Token(form, (tag(nominal, "pronoun"),))]


def _noun_phrase(phrase: NounPhrase, case: str) -> list[Token]:
    determiner, inflection = DETERMINERS[phrase.det], (grammatical_gender(phrase), case)
    tokens = fixed_tokens(phrase.number, GERMAN)
    for i, adjective in enumerate(phrase.adjectives):
        ending = PARADIGMS[f"{determiner.adjective} adjective", *inflection]
        tokens.append(Token(adjective.de.removesuffix("e") + ending, (tag(phrase, f"adjective{i}"),)))
    tokens.append(Token(_noun(phrase.noun, phrase.plural, case), (tag(phrase, "noun"),)))
    if phrase.det:
        if phrase.owner is not None:
            form = _relative(phrase.owner, "gen")
        else:
            form = determiner.stem + PARADIGMS[f"{determiner.declension} determiner", *inflection]
        tokens.insert(0, Token(form, (tag(phrase, "determiner"),)))
    if phrase.of is not None:
        tokens += _noun_phrase(phrase.of, "gen")
    tokens += _prep_phrase(phrase.modifier)
    if phrase.relative is not None:
        tokens += [COMMA, *_clause(phrase.relative, "last"), COMMA]
    return tokens


def _relative(gap: Gap, case: str) -> str:
    return PARADIGMS["relative", grammatical_gender(gap), case]


def _noun(noun: Noun, plural: bool, case: str) -> str:
    """Inflect a noun: dative plural -n, genitive -s or -es, n-declension -n except in the nominative."""
    if plural:
        return noun.de_plural + ("n" if case == "dat" and noun.de_plural[-1] not in "ns" else "")
    if noun.weak:
        return noun.de if case == "nom" else noun.de_plural
    if case != "gen" or noun.gender == "f":
        return noun.de
    return noun.de + ("es" if _syllables(noun.de) == 1 else "s")


def _syllables(word: str) -> int:
    vowels = [letter in "aeiouäöü" for letter in word.lower()]
    return sum(here and not before for before, here in zip([False, *vowels], vowels, strict=False))
