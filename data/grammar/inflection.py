"""Inflection of the embedded grammar: German paradigms and English verb forms.

A gender is "m", "f", "n" or, in the plural, "p". A case is "nom", "acc", "dat" or "gen". A person is "1s",
"2s", "3s" or "p": German verbs have the same form in the first and third person plural, and the grammar has
no second person plural.
"""

from .lexicon import BE, DETERMINERS, MODALS, Adjective, Noun, Verb

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
