"""Syntax trees and inflection; both languages are rendered from the same tree."""

from __future__ import annotations

from dataclasses import dataclass

from data.grammar.lexicon import BE, DETERMINERS, MODALS, Adjective, Noun, Preposition, Verb

# Inflection of the embedded grammar: German paradigms and English verb forms.
#
# A gender is "m", "f", "n" or, in the plural, "p". A case is "nom", "acc", "dat" or "gen". A person is "1s",
# "2s", "3s" or "p": German verbs have the same form in the first and third person plural, and the grammar has
# no second person plural.


CASES = ("nom", "acc", "dat", "gen")


def _paradigm(m: str, f: str, n: str, p: str) -> dict[tuple[str, str], str]:
    """Build a paradigm from four strings of forms in nom, acc, dat, gen; "-" is the empty ending."""
    rows = {"m": m, "f": f, "n": n, "p": p}
    return {
        (gender, case): form.strip("-")
        for gender, row in rows.items()
        for case, form in zip(CASES, row.split(), strict=True)
    }


ARTICLE = _paradigm("der den dem des", "die die der der", "das das dem des", "die die den der")
RELATIVE = _paradigm("der den dem dessen", "die die der deren", "das das dem dessen", "die die denen deren")
ENDINGS = {
    "strong": _paradigm("er en em es", "e e er er", "es es em es", "e e en er"),
    "ein": _paradigm("- en em es", "e e er er", "- - em es", "e e en er"),
}
ADJECTIVE_ENDINGS = {
    "weak": _paradigm("e en en en", "e e en en", "e e en en", "en en en en"),
    "mixed": _paradigm("er en en en", "e e en en", "es es en en", "en en en en"),
    "strong": _paradigm("er en em en", "e e er er", "es es em en", "e e en er"),
}
PRONOUNS = {  # english -> (english object form, person, German nominative, accusative, dative)
    "I": ("me", "1s", "ich", "mich", "mir"),
    "you": ("you", "2s", "du", "dich", "dir"),
    "he": ("him", "3s", "er", "ihn", "ihm"),
    "she": ("her", "3s", "sie", "sie", "ihr"),
    "we": ("us", "p", "wir", "uns", "uns"),
    "they": ("them", "p", "sie", "sie", "ihnen"),
    "it": ("it", "3s", "es", "es", "ihm"),
    "who": ("whom", "3s", "wer", "wen", "wem"),
    "what": ("what", "3s", "was", "was", ""),
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}
SEIN = {"1s": "bin", "2s": "bist", "3s": "ist", "p": "sind"}
WAR = {"1s": "war", "2s": "warst", "3s": "war", "p": "waren"}
HABEN = {"1s": "habe", "2s": "hast", "3s": "hat", "p": "haben"}


def german_determiner(det: str, gender: str, case: str) -> str:
    """Inflect the German translation of an English determiner other than "" and "whose"."""
    stem, declension, _ = DETERMINERS[det]
    if declension == "der":
        return ARTICLE[gender, case]
    return stem + ENDINGS[declension][gender, case]


def german_adjective(adjective: Adjective, det: str, gender: str, case: str) -> str:
    """Inflect an attributive adjective; its determiner decides between weak, mixed and strong."""
    declension = DETERMINERS[det][2]
    return adjective.de.removesuffix("e") + ADJECTIVE_ENDINGS[declension][gender, case]


def german_noun(noun: Noun, plural: bool, case: str) -> str:
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


def german_present(verb: Verb, person: str) -> str:
    """Return the present form without the separable prefix: sehe, siehst, sieht, sehen."""
    if verb is BE:
        return SEIN[person]
    if verb.de == "wissen" and person != "p":
        return "weißt" if person == "2s" else "weiß"
    if person == "1s":
        return verb.de.removesuffix("n").removesuffix("e") + "e"
    if person == "2s":
        stem = verb.er.removesuffix("t")
        return verb.er if stem[-1] in "sßz" else stem + "st"
    return verb.er if person == "3s" else verb.de


def german_modal(modal: str, person: str) -> str:
    """Return the present form of the German modal of an English one; "will" is the future, werden."""
    return MODALS[modal][("1s", "2s", "3s", "p").index(person)]


def english_present(verb: Verb, person: str) -> str:
    """Return the English present form: see, sees, tries, am."""
    if verb is BE:
        return {"1s": "am", "3s": "is"}.get(person, "are")
    return third_person(verb.en) if person == "3s" else verb.en


def english_past(verb: Verb, person: str) -> str:
    """Return the English simple past."""
    if verb is BE:
        return "was" if person in ("1s", "3s") else "were"
    return verb.past


def third_person(base: str) -> str:
    """Return the third person singular: sees, washes, goes, carries."""
    if base.endswith(("s", "sh", "ch", "x", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


# Syntax trees; both languages are rendered from the same tree.
#
# The identity of a node tags the words that realise it, and two words with a common tag are linked in the
# gold alignment. Therefore a node must occur only once in one tree: build a new node instead of using one
# twice.


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
    """The part of a relative clause that is realised by the relative pronoun."""


@dataclass(frozen=True, eq=False, slots=True)
class NounPhrase:
    """Determiner, number, adjectives and noun, then a genitive, a modifier or a relative clause.

    ``det`` is a key of ``lexicon.DETERMINERS``; "whose" refers to the antecedent of a relative clause.
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
class Relative:
    """A relative clause; ``clause`` contains one Gap, or a subject with the determiner "whose"."""

    clause: Clause


@dataclass(frozen=True, eq=False, slots=True)
class Subordinate:
    """A clause after a conjunction or a question adverb; its verb is last in German."""

    conjunction: Fixed
    clause: Clause


@dataclass(frozen=True, eq=False, slots=True)
class Infinitive:
    """An infinitive clause: "to ..." or, for a purpose, "in order to ..."."""

    clause: Clause
    purpose: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Clause:
    """The parts of a clause, without word order.

    ``tense`` is "present", "past" or a key of ``lexicon.MODALS``. ``front`` names the part that comes first:
    subject, object, recipient, place, times or question. Only the clause of an ``Infinitive`` has no subject.
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
    """A main clause with subordinate clauses before and after it, optionally ", and" another sentence."""

    main: Clause
    asks: bool = False
    before: Subordinate | None = None
    after: tuple[Subordinate | Infinitive, ...] = ()
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


def grammatical_gender(phrase: NounPhrase) -> str:
    """Return "m", "f", "n" or, for any plural, "p"."""
    return "p" if phrase.plural else phrase.noun.gender


def person_of(nominal: Nominal, antecedent: NounPhrase | None) -> str:
    """Return the person of a verb with this subject; ``antecedent`` is the noun phrase behind a Gap."""
    if isinstance(nominal, Pronoun):
        return PRONOUNS[nominal.en][1]
    if isinstance(nominal, Gap):
        assert antecedent is not None
        nominal = antecedent
    return "p" if isinstance(nominal, Pair) or nominal.plural else "3s"


def marker_tags(nominal: Nominal) -> tuple[TreeTag, ...]:
    """Return the tags of an English "to" or "of": those of the German word that shows the case, the first."""
    if isinstance(nominal, Pair):
        return marker_tags(nominal.left)
    if isinstance(nominal, NounPhrase):
        return (tag(nominal, "determiner" if nominal.det else "noun"),)
    return (tag(nominal, "pronoun"),)


def relative_front(clause: Clause) -> str:
    """Return the name of the part of a relative clause that contains its pronoun."""
    for part in ("object", "recipient", "place", "direction"):
        value = getattr(clause, part)
        if isinstance(value, Gap) or (isinstance(value, PrepPhrase) and isinstance(value.nominal, Gap)):
            return part
    return "subject"
