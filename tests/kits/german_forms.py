"""German word forms, spelled out from the tables of the recogniser."""

from collections import defaultdict
from typing import NamedTuple

from tests.kits import german_tables as table

Reading = tuple[str, str, str]
"""Case N A D G; gender m f n, p for plurals, - for pronouns; person 1 2 3 p."""
Agreement = set[tuple[str, str]]


class Verb(NamedTuple):
    lemma: str
    prefix: str
    auxiliary: str
    complements: str


def cells(rows: dict[str, str], stem: str = "") -> dict[str, Agreement]:
    """Turn a paradigm into form -> {(gender, case)}."""
    forms: dict[str, Agreement] = defaultdict(set)
    for gender, row in rows.items():
        for case, ending in zip(table.CASES, row.split(), strict=False):
            forms[stem + ending.strip("0")].add((gender, case))
    return forms


def noun_forms() -> dict[str, set[tuple[str, str, bool]]]:
    """Give form -> {(gender, case, whether it needs a determiner in the singular)}."""
    forms: dict[str, set[tuple[str, str, bool]]] = defaultdict(set)
    for gender, listed in (("m", table.MASCULINE), ("f", table.FEMININE), ("n", table.NEUTER)):
        for singular, plural in (entry.split("/") for entry in listed.split()):
            for case in "NADG" if gender == "f" else "NAD":
                forms[singular].add((gender, case, plural != ""))
            for case in "NADG" if plural else "":
                ending = "n" if case == "D" and not plural.endswith(("n", "s")) else ""
                forms[plural + ending].add(("p", case, False))
    for singular in table.WEAK.split():
        oblique = singular + ("n" if singular.endswith(("e", "r")) and singular != "Bär" else "en")
        forms[singular].add(("m", "N", True))
        forms[oblique] |= {("m", case, True) for case in "ADG"} | {("p", case, False) for case in "NADG"}
    for form in table.GENITIVES:
        forms[form].add(("n" if form in ("Kindes", "Mädchens") else "m", "G", True))
    return forms


def determiner_forms() -> dict[str, list[tuple[str, Agreement]]]:
    """Give form -> [(declension of adjectives after it, {(gender, case)})]."""
    forms: dict[str, list[tuple[str, Agreement]]] = defaultdict(list)
    stems = [("", table.ARTICLES, "der")]
    stems += [(stem, table.DIES, "der") for stem in ("dies", "jed", "all", "welch")]
    stems += [(stem, table.DIES, "none") for stem in ("viel", "einig")]
    stems += [(stem, table.EIN, "ein") for stem in table.words("ein kein mein dein sein ihr unser")]
    for stem, rows, declension in stems:
        for form, agreement in cells(rows, stem).items():
            if stem == "jed":
                agreement = {(gender, case) for gender, case in agreement if gender != "p"}
            if stem in ("all", "viel", "einig", "ein"):
                agreement = {pair for pair in agreement if (pair[0] == "p") == (stem != "ein")}
            if agreement:
                forms[form].append((declension, agreement))
    return forms


NOUNS, DETERMINERS = noun_forms(), determiner_forms()
PRONOUNS: dict[str, set[Reading]] = defaultdict(set)
for _entry in table.PRONOUNS.split():
    _form, _reading = _entry.split(":")
    PRONOUNS[_form].add((_reading[0], "-", _reading[1]))
ENDINGS = {"der": cells(table.AFTER_DER), "ein": cells(table.AFTER_EIN), "none": cells(table.AFTER_NONE)}
RELATIVES = cells(table.RELATIVES)
ADJECTIVES = {stem + ending: ending for stem in table.ADJECTIVES for ending in ("e", "er", "es", "en", "em")}
PREDICATES = {"müde" if stem == "müd" else stem for stem in table.ADJECTIVES}
FINITE: dict[str, set[tuple[str, str, bool]]] = defaultdict(
    set
)  # form -> (lemma with prefix, person, joined)
PARTICIPLES: dict[str, set[str]] = defaultdict(set)
INFINITIVES: dict[str, set[str]] = defaultdict(set)
ZU_INFINITIVES: dict[str, set[str]] = defaultdict(set)  # "aufzumachen"; others are "zu" and an infinitive
VERBS: dict[str, Verb] = {}


def enter_verb(line: str) -> None:
    """Fill the tables of verb forms with one verb."""
    name, third, participle, auxiliary, complements = line.split()
    prefix, _, base = name.rpartition("|")
    lemma = prefix + base
    VERBS[lemma] = Verb(lemma, prefix, auxiliary, complements)
    first = "weiß" if lemma == "wissen" else base.removesuffix("n").removesuffix("e") + "e"
    forms = {"1": first, "2": table.SECOND.get(third, third[:-1] + "st"), "3": third, "p": base}
    for person, form in forms.items():
        FINITE[form].add((lemma, person, False))
        if prefix:
            FINITE[prefix + form].add((lemma, person, True))
    PARTICIPLES[participle].add(lemma)
    INFINITIVES[lemma].add(lemma)
    if prefix:
        ZU_INFINITIVES[f"{prefix}zu{base}"].add(lemma)


for _line in table.VERBS.strip().splitlines():
    enter_verb(_line)
for _lemma, _forms in [*table.AUXILIARY.items(), ("sein", " ".join(table.WAS))]:
    for _person, _form in zip("123p", _forms.split(), strict=True):
        FINITE[_form].add((_lemma, _person, False))
INFINITIVES["sein"].add("sein")
MODALS = set(table.AUXILIARY) - {"haben", "sein"}
