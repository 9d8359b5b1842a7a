"""Rendering of trees in German."""

from data.grammar.lexicon import BE
from data.grammar.trees import (
    CONTRACTIONS,
    HABEN,
    PRONOUNS,
    RELATIVE,
    SEIN,
    WAR,
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
    fixed_tokens,
    german_adjective,
    german_determiner,
    german_modal,
    german_noun,
    german_present,
    grammatical_gender,
    person_of,
    relative_front,
    tag,
)

GERMAN = 1
COMMA = Token(",")
PRONOUN_CASES = ("nom", "acc", "dat")


def german(sentence: Sentence) -> list[Token]:
    """Render a sentence in German; its first letter is not yet upper case."""
    return tidy_commas(untidy_german(sentence))


def untidy_german(sentence: Sentence) -> list[Token]:
    """Render a sentence in German with a comma at each end of every subordinate clause."""
    sign = tag(sentence, "sign")
    tokens = []
    if sentence.before is not None:
        tokens += [*_subordinate(sentence.before), Token(",", (tag(sentence, "comma"),))]
    order = "first" if sentence.before is not None else "second"
    tokens += _clause(sentence.main, order)
    for after in sentence.after:
        tokens += [COMMA, *(_infinitive(after) if isinstance(after, Infinitive) else _subordinate(after))]
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


def _infinitive(infinitive: Infinitive) -> list[Token]:
    opening = [Token("um", (tag(infinitive, "purpose"),))] if infinitive.purpose else []
    return opening + _clause(infinitive.clause, "last")


def _clause(clause: Clause, order: str, antecedent: NounPhrase | None = None) -> list[Token]:
    """Render a clause; ``order`` is the position of its finite verb, "first", "second" or "last"."""
    front = relative_front(clause) if antecedent is not None else clause.front
    parts = dict(_middle_field(clause, antecedent))
    fronted = parts.pop(front, []) if order != "first" else []
    middle = [token for part in parts.values() for token in part]
    finite, closing = _verbs(clause, order == "last", antecedent)
    if order == "last":
        tokens = [*fronted, *middle, *closing, *finite]
    else:
        tokens = [*fronted, *finite, *middle, *closing]
    if isinstance(clause.complement, Subordinate):
        tokens += [COMMA, *_subordinate(clause.complement), COMMA]
    elif clause.complement is not None:
        tokens += [COMMA, *_infinitive(clause.complement), COMMA]
    return tokens


def _middle_field(clause: Clause, antecedent: NounPhrase | None) -> list[tuple[str, list[Token]]]:
    """Order the parts between the verbs: pronouns, time, dative, accusative, "nicht", manner, place."""
    target, recipient = clause.object, clause.recipient
    parts: list[tuple[str, list[Token]]] = []
    if clause.question is not None:
        parts.append(("question", fixed_tokens(clause.question, GERMAN)))
    if clause.subject is not None:
        parts.append(("subject", _nominal(clause.subject, "nom", antecedent)))
    object_tokens = [] if target is None else _nominal(target, clause.verb.case, antecedent)
    related = clause.verb.de_relation != ""
    objects = [("object", object_tokens)] if target is not None and not related else []
    recipients = [] if recipient is None else [("recipient", _nominal(recipient, "dat", antecedent))]
    early_object, early_recipient = isinstance(target, Pronoun), isinstance(recipient, Pronoun)
    parts += objects if early_object else []
    parts += recipients if early_recipient else []
    parts.append(("times", fixed_tokens(clause.times, GERMAN)))
    parts.append(("frequency", fixed_tokens(clause.frequency, GERMAN)))
    parts += [] if early_recipient else recipients
    parts += [] if early_object else objects
    if clause.negated:
        parts.append(("not", [Token("nicht", (tag(clause, "not"),))]))
    parts.append(("manner", fixed_tokens(clause.manner, GERMAN)))
    parts.append(("place", _prep_phrase(clause.place, antecedent)))
    if related:
        relation = Token(clause.verb.de_relation, (tag(clause, "relation"),))
        parts.append(("object", _contracted(relation, target, object_tokens)))
    parts.append(("direction", _prep_phrase(clause.direction, antecedent)))
    if clause.predicate is not None:
        adjective = Token(clause.predicate.adjective.de, (tag(clause.predicate, "adjective"),))
        parts.append(("predicate", [*fixed_tokens(clause.predicate.degree, GERMAN), adjective]))
    return parts


def _verbs(clause: Clause, last: bool, antecedent: NounPhrase | None) -> tuple[list[Token], list[Token]]:
    """Render the finite verb, and the words at the end of the clause (participle, infinitive, prefix)."""
    verb, tense = clause.verb, clause.tense
    finite, main = tag(clause, "finite"), tag(clause, "verb")
    if clause.subject is None:
        return [], _zu_infinitive(clause)
    form = finite_form(clause, person_of(clause.subject, antecedent))
    if tense == "present":
        if last or not verb.prefix:
            return [Token(verb.prefix + form, (finite, main))], []
        return [Token(form, (finite, main))], [Token(verb.prefix, (main,))]
    if tense != "past":
        return [Token(form, (finite,))], [Token(verb.prefix + verb.de, (main,))]
    if verb is BE:
        return [Token(form, (finite, main))], []
    return [Token(form, (finite,))], [Token(verb.participle, (main,))]


def finite_form(clause: Clause, person: str) -> str:
    """Return the finite verb of a clause for a subject of this person, without its separable prefix."""
    verb, tense = clause.verb, clause.tense
    if tense == "present":
        return german_present(verb, person)
    if tense != "past":
        return german_modal(tense, person)
    paradigm = WAR if verb is BE else SEIN if verb.sein else HABEN
    return paradigm[person]


def _zu_infinitive(clause: Clause) -> list[Token]:
    zu, main, verb = tag(clause, "zu"), tag(clause, "verb"), clause.verb
    if verb.prefix:
        return [Token(f"{verb.prefix}zu{verb.de}", (zu, main))]
    return [Token("zu", (zu,)), Token(verb.de, (main,))]


def _prep_phrase(phrase: PrepPhrase | None, antecedent: NounPhrase | None) -> list[Token]:
    """Render a prepositional phrase."""
    if phrase is None:
        return []
    case = phrase.preposition.case
    preposition = Token(phrase.preposition.de, (tag(phrase, "preposition"),))
    return _contracted(preposition, phrase.nominal, _nominal(phrase.nominal, case, antecedent))


def _contracted(preposition: Token, nominal: Nominal | None, tokens: list[Token]) -> list[Token]:
    """Contract preposition and article, but not a relative pronoun: im, zur, vom."""
    contraction = CONTRACTIONS.get((preposition.text, tokens[0].text))
    if contraction is None or isinstance(nominal, Gap):
        return [preposition, *tokens]
    return [Token(contraction, preposition.tags + tokens[0].tags), *tokens[1:]]


def _nominal(nominal: Nominal, case: str, antecedent: NounPhrase | None) -> list[Token]:
    if isinstance(nominal, Pronoun):
        return [Token(PRONOUNS[nominal.en][2 + PRONOUN_CASES.index(case)], (tag(nominal, "pronoun"),))]
    if isinstance(nominal, Gap):
        assert antecedent is not None
        return [Token(RELATIVE[grammatical_gender(antecedent), case], (tag(nominal, "pronoun"),))]
    if isinstance(nominal, Pair):
        left, right = (_nominal(part, case, antecedent) for part in (nominal.left, nominal.right))
        return [*left, Token("und", (tag(nominal, "and"),)), *right]
    return _noun_phrase(nominal, case, antecedent)


def _noun_phrase(phrase: NounPhrase, case: str, antecedent: NounPhrase | None) -> list[Token]:
    gender = grammatical_gender(phrase)
    tokens = []
    if phrase.det == "whose":
        assert antecedent is not None
        owner = RELATIVE[grammatical_gender(antecedent), "gen"]
        tokens.append(Token(owner, (tag(phrase, "determiner"),)))
    elif phrase.det:
        form = german_determiner(phrase.det, gender, case)
        tokens.append(Token(form, (tag(phrase, "determiner"),)))
    tokens += fixed_tokens(phrase.number, GERMAN)
    for i, adjective in enumerate(phrase.adjectives):
        form = german_adjective(adjective, phrase.det, gender, case)
        tokens.append(Token(form, (tag(phrase, f"adjective{i}"),)))
    tokens.append(Token(german_noun(phrase.noun, phrase.plural, case), (tag(phrase, "noun"),)))
    if phrase.of is not None:
        tokens += _noun_phrase(phrase.of, "gen", None)
    tokens += _prep_phrase(phrase.modifier, None)
    if phrase.relative is not None:
        tokens += [COMMA, *_clause(phrase.relative.clause, "last", phrase), COMMA]
    return tokens
