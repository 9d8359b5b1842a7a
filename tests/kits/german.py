"""A recogniser of the German that the built-in corpus may contain; it knows nothing of the generator.

``accepts(sentence)`` says whether some reading of it has noun phrases that agree, cases that fit prepositions
and verbs, a finite verb that agrees with its subject and stands in its place, the right auxiliary, and the
other verbal words at the end of their clause.

Readings of a noun phrase are (case, gender, person): case N A D G;
gender m f n, p for plurals, - for pronouns; person 1 2 3 p.
"""

from collections.abc import Iterator

from data.vocabulary import split_words
from tests.kits import german_tables as table
from tests.kits.german_clauses import Element, governed, well_formed
from tests.kits.german_forms import (
    ADJECTIVES,
    DETERMINERS,
    ENDINGS,
    FINITE,
    INFINITIVES,
    NOUNS,
    PARTICIPLES,
    PREDICATES,
    PRONOUNS,
    RELATIVES,
    VERBS,
    ZU_INFINITIVES,
    Reading,
)

Readings = frozenset[Reading]


class Recogniser:
    """Reads one sentence by recursive descent, trying every attachment."""

    def __init__(self, sentence: str) -> None:
        words = split_words(sentence)
        if words[0] not in NOUNS:
            words[0] = words[0].lower()
        self.words = words
        self.known: dict[tuple[int, str], list[tuple[Readings, int]]] = {}

    def word(self, i: int) -> str:
        return self.words[i] if i < len(self.words) else ""

    # noun phrases

    def bare(self, i: int, article: str = "", possessor: bool = False) -> Iterator[tuple[Readings, int]]:
        """Read determiner, number, adjectives, noun; ``article`` is one hidden in a preposition (im)."""
        word = self.word(i)
        if word in PRONOUNS and not article:
            yield frozenset(PRONOUNS[word]), i + 1
        options = [("none", None, i)]
        if article:
            options = [(declension, agreement, i) for declension, agreement in DETERMINERS[article]]
        elif word in DETERMINERS and not possessor:
            options += [(declension, agreement, i + 1) for declension, agreement in DETERMINERS[word]]
        for declension, agreement, start in options:
            end, counted = start, False
            if self.word(end) in table.NUMBERS:
                end, counted = end + 1, True
            first_adjective = end
            while self.word(end) in ADJECTIVES:
                end += 1
            endings = [ADJECTIVES[word] for word in self.words[first_adjective:end]]
            readings = {
                (case, gender, "p" if gender == "p" else "3")
                for gender, case, needs in NOUNS.get(self.word(end), ())
                if agreement is None or (gender, case) in agreement
                if all((gender, case) in ENDINGS[declension][ending] for ending in endings)
                if gender == "p" or not counted
                if agreement is not None or possessor or not needs
                if agreement is not None or possessor or case != "G"
            }
            if readings:
                yield frozenset(readings), end + 1

    def phrase(self, i: int, article: str = "") -> list[tuple[Readings, int]]:
        """Read a noun phrase with what may follow its noun, in all ways."""
        if (i, article) not in self.known:
            self.known[i, article] = list(self._phrase(i, article))
        return self.known[i, article]

    def _phrase(self, i: int, article: str) -> Iterator[tuple[Readings, int]]:
        for readings, end in self.bare(i, article):
            yield readings, end
            if any(gender == "-" for _, gender, _ in readings):
                continue
            if self.word(end) == "und":
                for right, last in self.phrase(end + 1):
                    cases = {case for case, _, _ in readings} & {case for case, _, _ in right}
                    yield frozenset((case, "p", "p") for case in cases), last
            yield from self.followed(readings, end)
            for genitive, last in self.phrase(end):
                if any(case == "G" for case, _, _ in genitive):
                    yield readings, last
            if self.word(end) in ("mit", "ohne", "aus", "für"):
                for _, last in self.prepositional(end):
                    yield readings, last

    def followed(self, readings: Readings, end: int) -> Iterator[tuple[Readings, int]]:
        """Read a relative clause after a noun phrase, which settles its gender."""
        if self.word(end) != ",":
            return
        for gender in sorted({gender for _, gender, _ in readings}):
            for last in self.relative(end + 1, gender):
                yield frozenset(reading for reading in readings if reading[1] == gender), last

    def relative(self, i: int, gender: str) -> Iterator[int]:
        person = "p" if gender == "p" else "3"
        openings: list[tuple[Element, int]] = []
        cases = {case for g, case in RELATIVES.get(self.word(i), ()) if g == gender}
        if cases:
            openings.append(
                (Element("np", frozenset((case, gender, person) for case in cases), free=True), i + 1)
            )
        preposition = self.word(i)
        for g, case in RELATIVES.get(self.word(i + 1), ()):
            if g == gender and case in governed(preposition):
                openings.append((Element("pp", (preposition, case)), i + 2))
        if self.word(i) == ("deren" if gender in "fp" else "dessen"):
            openings += [(Element("np", readings), end) for readings, end in self.bare(i + 1, possessor=True)]
        for opening, start in openings:
            for end in self.clause(start, "last", [opening]):
                if self.word(end) == ",":
                    yield end + 1
                elif self.word(end) in ".?" or self.word(end - 1) == ",":
                    yield end

    def prepositional(self, i: int) -> Iterator[tuple[tuple[str, str], int]]:
        """Read a prepositional phrase: (preposition, case) and its end."""
        preposition, _, article = table.MERGED.get(self.word(i), self.word(i)).partition(" ")
        for readings, end in self.phrase(i + 1, article) if governed(preposition) else ():
            for case in sorted({case for case, _, _ in readings} & governed(preposition)):
                yield (preposition, case), end

    # clauses

    def time(self, i: int) -> Iterator[int]:
        words = [self.word(k) for k in range(i, i + 5)]
        if words[0] in ("heute", "jetzt", "morgen", "gestern"):
            yield i + 1
        for dated in table.DATED:
            if words[: len(dated.split())] == dated.split():
                yield i + len(dated.split())
        months = table.MONTHS + table.SEASONS
        if (words[0] == "am" and words[1] in table.DAYS) or (words[0] == "im" and words[1] in months):
            yield i + 2
        if words[0] == "am" and words[1] in table.ORDINALS and words[2] in table.MONTHS:
            yield i + 3
        if words[0] == "um":
            if words[1] in ["ein", *table.SMALL] and words[2] == "Uhr":
                yield i + 3
            if words[1] == "halb" and words[2] in ["eins", *table.SMALL]:
                yield i + 3
            minutes = words[1] in ("Viertel", "fünf", "zehn", "zwanzig")
            if minutes and words[2] in ("vor", "nach") and words[3] in ["eins", *table.SMALL]:
                yield i + 4

    def element(self, i: int) -> Iterator[tuple[Element, int]]:
        """Read the next constituent of a clause in all ways."""
        word = self.word(i)
        yield from ((Element("time"), end) for end in self.time(i))
        yield from ((Element("pp", value), end) for value, end in self.prepositional(i))
        asks = word.startswith("welch") or word in ("wen", "wem", "was")
        yield from ((Element("np", readings, asks), end) for readings, end in self.phrase(i))
        if word in FINITE:
            yield Element("finite", FINITE[word]), i + 1
        if word in PARTICIPLES:
            yield Element("participle", PARTICIPLES[word]), i + 1
        if word in INFINITIVES:
            yield Element("infinitive", INFINITIVES[word]), i + 1
        if word in ZU_INFINITIVES:
            yield Element("zu", ZU_INFINITIVES[word]), i + 1
        if word == "zu" and self.word(i + 1) in INFINITIVES:
            lemmas = {
                lemma for lemma in INFINITIVES[self.word(i + 1)] if lemma in VERBS and not VERBS[lemma].prefix
            }
            yield Element("zu", lemmas), i + 2
        if word in ("auf", "zu", "an", "ab", "ein", "aus", "weg", "mit", "vor", "zurück"):
            yield Element("prefix", word), i + 1
        if word == "nicht":
            yield Element("nicht"), i + 1
        if word in table.ADVERBS or word in ("schnell", "langsam"):
            yield Element("adverb"), i + 1
        if word in ("wo", "wann", "warum", "wie"):
            yield Element("wh"), i + 1
        if word == "für" and self.word(i + 1) in table.NUMBERS and self.word(i + 2) == "Euro":
            yield Element("price"), i + 3
        start = i + 1 if word in ("sehr", "zu", "ziemlich") else i
        if word in table.NUMBERS and self.words[i + 1 : i + 3] == ["Jahre", "alt"]:
            start = i + 2
        if self.word(start) in PREDICATES:
            yield Element("predicate"), start + 1

    def clause(self, i: int, kind: str, read: list[Element]) -> Iterator[int]:
        """Read a clause to its end; ``kind``: finite verb "first", "second", "last", or "zu" for none."""
        word = self.word(i)
        if read and (word in ",.?" or self.words[i - 1] == ",") and well_formed(kind, read):
            yield i
        if word not in ",.?":
            for element, end in self.element(i):
                yield from self.clause(end, kind, [*read, element])

    # sentences

    def ends(self, i: int, state: str) -> bool:
        """Read clauses from word i; ``state``: "start", "before" (subordinate clauses so far) or "main"."""
        word, question = self.word(i), self.words[-1] == "?"
        if word in table.SUBORDINATORS:
            after = "main" if state == "main" else "before"
            if any(self.after(end, after) for end in self.clause(i + 1, "last", [])):
                return True
        if state == "start":
            kinds = ["first", "second"] if question else ["second"]
            return any(self.after(end, "main") for kind in kinds for end in self.clause(i, kind, []))
        if state == "main" and word in ("und", "aber"):
            return any(self.after(end, "main") for end in self.clause(i + 1, "second", []))
        start = i + 1 if word == "um" else i
        if any(self.after(end, state) for begin in {start, i} for end in self.clause(begin, "zu", [])):
            return True
        return state == "before" and any(self.after(end, "main") for end in self.clause(i, "first", []))

    def after(self, end: int, state: str) -> bool:
        """Go on after a clause: a comma and another clause, or the final sign."""
        if self.word(end) == ",":
            return self.ends(end + 1, state)
        if end == len(self.words) - 1:
            return state == "main"
        return self.words[end - 1] == "," and self.ends(end, state)


def accepts(sentence: str) -> bool:
    """Tell whether the sentence is correct German as far as the tables reach."""
    if not sentence[0].isupper() or sentence[-1] not in ".?":
        return False
    return Recogniser(sentence).ends(0, "start")
