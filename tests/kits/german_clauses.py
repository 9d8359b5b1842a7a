"""Conditions for a well-formed German clause, checked after its constituents are read."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tests.kits import german_tables as table
from tests.kits.german_forms import MODALS, VERBS, Verb


class Element(NamedTuple):
    """A constituent of a clause: its kind and what is known of it."""

    kind: str
    value: object = None
    free: bool = False  # a relative pronoun or question word, which may stand before the subject


def governed(preposition: str) -> set[str]:
    """Give the cases a preposition may govern."""
    if preposition in table.TWO_WAY:
        return {"A", "D"}
    return set(table.FIXED_CASE.get(preposition, ""))


def well_formed(kind: str, elements: list[Element]) -> bool:
    """Check verb place, agreement, auxiliary, valency, and the place of "nicht"."""
    kinds = [element.kind for element in elements]
    kinds = [
        here for before, here in zip(["", *kinds], kinds, strict=False) if (before, here) != ("time", "time")
    ]
    if kind == "zu":
        if kinds.count("zu") != 1 or kinds[-1] != "zu" or "finite" in kinds:
            return False
        return any(complete(VERBS[lemma], elements, "") for lemma in elements[-1].value)  # type: ignore[attr-defined]
    places = [place for place, element in enumerate(elements) if element.kind == "finite"]
    if len(places) != 1 or "zu" in kinds:
        return False
    expected = {"first": 0, "second": 1, "last": len(kinds) - 1}[kind]
    if kinds.index("finite") != expected or (kind == "second" and kinds[0] == "nicht"):
        return False
    finite = elements[places[0]]
    others = elements[: places[0]] + elements[places[0] + 1 :]
    return any(
        fits(lemma, person, joined, kind, others)
        for lemma, person, joined in finite.value  # type: ignore[attr-defined]
    )


def fits(lemma: str, person: str, joined: bool, kind: str, others: list[Element]) -> bool:
    """Check the non-finite words against the finite one, then valency; ``others`` lacks the finite verb."""
    verbal = [element for element in others if element.kind in ("participle", "infinitive", "prefix")]
    closing = others[-1] if others else Element("none")
    if len(verbal) > 1 or (verbal and closing is not verbal[0]):
        return False
    if lemma in MODALS:
        if closing.kind != "infinitive":
            return False
        return any(
            copula(others[:-1], person) if main == "sein" else complete(VERBS[main], others, person)
            for main in closing.value  # type: ignore[attr-defined]
        )
    if lemma in ("haben", "sein") and closing.kind == "participle":
        mains = [VERBS[main] for main in closing.value if VERBS[main].auxiliary == lemma]  # type: ignore[attr-defined]
        return any(complete(main, others, person) for main in mains)
    if lemma in ("haben", "sein"):
        return lemma == "sein" and not verbal and copula(others, person)
    verb = VERBS[lemma]
    if verb.prefix and joined != (kind == "last"):
        return False
    split = verb.prefix if verb.prefix and kind != "last" else ""
    if (closing.value if closing.kind == "prefix" else "") != split or (verbal and not split):
        return False
    return complete(verb, others, person)


def copula(others: list[Element], person: str) -> bool:
    """Check a clause of "sein": a subject, then at the end a predicate."""
    phrases = [element for element in others if element.kind == "np"]
    is_subject = len(phrases) == 1 and nominative(phrases[0], person)
    static = all(case == "D" for _, case in values(others, "pp"))
    return is_subject and static and (others[-1].kind == "predicate")


def nominative(element: Element, person: str) -> bool:
    return any(case == "N" and who == person for case, _, who in element.value)  # type: ignore[attr-defined]


def values(elements: list[Element], kind: str) -> list[tuple[str, str]]:
    return [element.value for element in elements if element.kind == kind]  # type: ignore[misc]


def complete(verb: Verb, elements: list[Element], person: str) -> bool:
    """Check that the subject agrees and that the verb has just the objects and directions it asks for."""
    if any(element.kind == "predicate" for element in elements):
        return False
    phrases = [element for element in elements if element.kind == "np"]
    negation = [place for place, element in enumerate(elements) if element.kind == "nicht"]
    later = [element.kind for element in elements[negation[0] :]] if negation else []
    if "np" in later or "time" in later:
        return False
    return any(
        cases_fit(phrases, needed, person) and prepositions_fit(values(elements, "pp"), relation)
        for needed, relation in frames(verb.complements)
    )


def frames(complements: str) -> Iterator[tuple[str, str]]:
    """Give (cases of the objects, "", "to" or "preposition:case") for each frame of a verb."""
    for frame in complements.split("/"):
        if ":" in frame:
            yield "", frame
        elif frame.endswith("to"):
            yield frame.removesuffix("to"), "to"
        else:
            yield frame.strip("-C"), ""


def cases_fit(phrases: list[Element], needed: str, person: str) -> bool:
    """Assign the cases to the phrases, in an order that German asks for."""
    wanted = ("N" if person else "") + needed
    if len(phrases) != len(wanted):
        return False
    for cases in set(itertools.permutations(wanted)):
        placed = dict(zip(cases, phrases, strict=True))
        if all(
            any(have == case and (case != "N" or who == person) for have, _, who in element.value)  # type: ignore[attr-defined]
            for case, element in placed.items()
        ) and in_order(cases, placed):
            return True
    return False


def in_order(cases: tuple[str, ...], placed: dict[str, Element]) -> bool:
    """Check: subject first, dative before accusative unless that is a pronoun; what is free comes first."""
    free = 1 if next(iter(placed.values()), Element("none")).free else 0
    rest = cases[free:]
    if "N" in rest and rest[0] != "N":
        return False
    if "A" in rest and "D" in rest:
        pronoun = all(gender == "-" for _, gender, _ in placed["A"].value)  # type: ignore[attr-defined]
        return (rest.index("A") < rest.index("D")) == pronoun
    return True


def prepositions_fit(phrases: list[tuple[str, str]], relation: str) -> bool:
    """Check that two-way prepositions take the accusative for the one direction only, else the dative."""
    directions = [
        (preposition, case)
        for preposition, case in phrases
        if (preposition in table.TWO_WAY and case == "A") or preposition in ("zu", "nach", "durch", "um")
    ]
    related = [(preposition, case) for preposition, case in phrases if f"{preposition}:{case}" == relation]
    if relation == "to":
        return len(directions) == 1
    if relation:
        return len(related) == 1 and all(direction in related for direction in directions)
    return not directions and not {preposition for preposition, _ in phrases} & {
        "mit",
        "von",
        "ohne",
        "für",
        "aus",
    }
