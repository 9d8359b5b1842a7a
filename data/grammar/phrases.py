"""Sampling of noun phrases, adverbials and numerals of the embedded grammar."""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from data.grammar import lexicon as lex
from data.grammar.lexicon import MONTHS, WEEKDAYS, Adjective, Noun, Preposition, Verb
from data.grammar.trees import Clause, Fixed, Gap, Nominal, NounPhrase, Pair, PrepPhrase, Pronoun

# Numbers, dates and times of the embedded grammar, as English-German chunks.


SMALL = [("", ""), *lex.NUMBERS]
TENS = dict(zip((20, 30, 40, 50), lex.TENS, strict=True))
ENGLISH_TENTHS = {20: "twentieth", 30: "thirtieth"}


def number_words(number: int) -> tuple[str, str]:
    """Return a number (1-12 or 20-59) in words: "twenty three", "dreiundzwanzig" with the unit first."""
    if number <= 12:
        return SMALL[number]
    tens, unit = number - number % 10, number % 10
    if unit == 0:
        return TENS[tens]
    german_unit = "ein" if unit == 1 else SMALL[unit][1]
    return f"{TENS[tens][0]} {SMALL[unit][0]}", f"{german_unit}und{TENS[tens][1]}"


def ordinal_words(day: int) -> tuple[str, str]:
    """Return a day of the month (1-31) in words: "twenty third", in the dative "dreiundzwanzigsten"."""
    if day <= 19:
        return lex.ORDINALS[day - 1]
    tens, unit = day - day % 10, day % 10
    german = number_words(day)[1] + "sten"
    return (f"{TENS[tens][0]} {lex.ORDINALS[unit - 1][0]}" if unit else ENGLISH_TENTHS[tens]), german


def date(day: int, month: int) -> Fixed:
    """Return a date: "on the third of May", "am dritten Mai"."""
    return Fixed((("on the", "am"), ordinal_words(day), ("of", ""), MONTHS[month - 1]))


def weekday(day: int) -> Fixed:
    """Return a weekday (day 0 is Monday): "on Monday", "am Montag"."""
    return Fixed((("on", "am"), WEEKDAYS[day]))


def clock(hour: int, minutes: int) -> Fixed:
    """Return a time of day: hour 1-12 and 0, 5, 10, 15, 20, 30, 40, 45, 50 or 55 minutes.

    German counts half hours towards the next hour: "at half past three" is "um halb vier".
    """
    next_hour = hour % 12 + 1
    if minutes == 0:
        hour_words = (SMALL[hour][0], "ein" if hour == 1 else SMALL[hour][1])
        return Fixed((("at", "um"), hour_words, ("o'clock", "Uhr")))
    if minutes == 30:
        return Fixed((("at", "um"), ("half past", "halb"), (SMALL[hour][0], SMALL[next_hour][1])))
    relation, hour_words = (
        (("past", "nach"), SMALL[hour]) if minutes < 30 else (("to", "vor"), SMALL[next_hour])
    )
    distance = min(minutes, 60 - minutes)
    minute_words = ("a quarter", "Viertel") if distance == 15 else number_words(distance)
    return Fixed((("at", "um"), minute_words, relation, hour_words))


# Sampling of noun phrases and adverbials of the embedded grammar.


T = TypeVar("T")
POSSESSIVES = ("my", "his", "her", "our", "your", "their")
SINGULAR_DETERMINERS = (["the"] * 14) + (["a"] * 8) + ["this", "this", "every", "no"] + [*POSSESSIVES]
PLURAL_DETERMINERS = (["the"] * 12) + ["this", "all", "many", "some", "some", "", "", ""] + [*POSSESSIVES]
MASS_DETERMINERS = ["", "", "", "", "the", "the", "this", "my", "his"]
DEFINITE_DETERMINERS = [*(["the"] * 14), "this", *POSSESSIVES]
TIMES = ("day", "day", "part", "weekday", "date", "month", "clock", "weekday clock")
BRIEF_TIMES = TIMES[:6]
PERSONS, NAMES = frozenset({"person"}), frozenset({"name"})
NAMED = frozenset({"name", "city"})
PRONOUN_WEIGHTS = {"he": 5, "she": 5, "they": 4, "we": 3, "I": 4, "you": 4}


@cache
def nouns_of(kinds: frozenset[str]) -> tuple[list[Noun], list[float]]:
    """Return the nouns of any of these kinds with cumulative weights; earlier nouns weigh more."""
    chosen = [noun for noun in lex.NOUNS if noun.kinds & kinds]
    return chosen, cumulative_weights(len(chosen))


@cache
def verbs_of(frame: str) -> tuple[list[Verb], list[float]]:
    """Return the verbs of a frame with cumulative weights."""
    chosen = [verb for verb in lex.VERBS if verb.frame == frame]
    return chosen, cumulative_weights(len(chosen))


@cache
def adjectives_of(kinds: frozenset[str]) -> tuple[list[Adjective], list[float]]:
    """Return the adjectives that describe nouns of these kinds, with cumulative weights."""
    chosen = [adjective for adjective in lex.ADJECTIVES if adjective.kinds & kinds]
    return chosen, cumulative_weights(len(chosen))


def cumulative_weights(count: int) -> list[float]:
    """Return cumulative sums of 1 / (rank + 12), ranks from 0: mildly Zipfian, so that no entry is rare."""
    total, weights = 0.0, []
    for rank in range(count):
        total += 1.0 / (rank + 12.0)
        weights.append(total)
    return weights


class PhraseSampler:
    """Sampler of phrases.

    Args:
        rng: source of randomness.
        long: sample long sentences.

    Attributes:
        richness: factor on the probabilities of all optional parts, 0.3 to 1.
        depth: number of relative clauses around the current phrase.
    """

    def __init__(self, rng: random.Random, long: bool = False) -> None:
        self.rng = rng
        self.long = long
        self.richness = 1.0 if long else 0.3 + rng.random() * 0.7
        self.depth = 0

    def chance(self, probability: float) -> bool:
        """Decide whether to include an optional part."""
        return self.rng.random() < probability * self.richness

    def weighted(self, table: tuple[list[T], list[float]]) -> T:
        """Draw an entry of a list with cumulative weights."""
        return self.rng.choices(table[0], cum_weights=table[1])[0]

    def fixed(self, table: Sequence[tuple[str, str]]) -> Fixed:
        """Draw an uninflected phrase; "|" separates the chunks that are linked to each other."""
        english, german = self.rng.choice(table)
        return Fixed(tuple(zip(english.split("|"), german.split("|"), strict=True)))

    def manner(self, verb: Verb) -> Fixed:
        """Draw an adverb of manner, or the price of what is bought or sold."""
        if verb.en in ("buy", "sell"):
            return Fixed((("for", "für"), self.number(20, 49), ("euros", "Euro")))
        return self.fixed(lex.MANNERS)

    def number(self, low: int, high: int) -> tuple[str, str]:
        """Draw a number from ``low`` to ``high``, in words."""
        return number_words(self.rng.randint(low, high))

    def times(self, tense: str, brief: bool = False) -> Fixed:
        """Draw a time adverbial that fits the tense; a ``brief`` one has no time of day."""
        rng = self.rng
        kind = rng.choice(BRIEF_TIMES if brief else TIMES)
        if kind == "day":
            days = lex.PAST_DAY if tense == "past" else [*lex.ANY_DAY, *lex.COMING_DAY]
            return self.fixed(days)
        if kind == "part":
            return self.fixed(lex.DAY_PARTS)
        if kind == "month":
            named = rng.choice([*lex.MONTHS, *lex.SEASONS])
            return Fixed((("in", "im"), named))
        if kind == "date":
            return date(rng.randint(1, 31), rng.randint(1, 12))
        chunks: tuple[tuple[str, str], ...] = ()
        if kind != "clock":
            chunks += weekday(rng.randrange(7)).chunks
        if kind != "weekday":
            chunks += clock(rng.randint(1, 12), rng.choice((0, 0, 30, 30, 15, 45, 10, 50, 20, 40))).chunks
        return Fixed(chunks)

    def prep_phrase(self, prepositions: Sequence[Preposition], closed: bool) -> PrepPhrase:
        """Draw a preposition, earlier ones more often, and a noun phrase of a kind that it allows."""
        preposition = self.rng.choices(prepositions, [1 / rank for rank in range(1, len(prepositions) + 1)])[
            0
        ]
        noun = self.weighted(nouns_of(preposition.kinds))
        return PrepPhrase(preposition, self.noun_phrase(noun, closed, definite=True))

    def subject(self, verb: Verb) -> Nominal:
        """Draw a subject: a noun phrase, two of them, or a pronoun."""
        if "person" in verb.subjects and self.rng.random() < 0.28:
            return Pronoun(self.rng.choices(list(PRONOUN_WEIGHTS), list(PRONOUN_WEIGHTS.values()))[0])
        kinds = NAMES if "person" in verb.subjects and self.rng.random() < 0.12 else verb.subjects
        if self.chance(0.1):
            return self.pair(kinds)
        return self.noun_phrase(self.weighted(nouns_of(kinds)), opening=True)

    def pair(self, kinds: frozenset[str]) -> Pair:
        """Draw two different nouns joined by "and"."""
        left = right = self.short_phrase(kinds)
        while right.noun is left.noun:
            right = self.short_phrase(kinds)
        return Pair(left, right)

    def short_phrase(self, kinds: frozenset[str]) -> NounPhrase:
        """Draw one noun phrase of a pair: definite, with nothing after the noun."""
        noun = self.weighted(nouns_of(kinds))
        if "name" in noun.kinds:
            return NounPhrase(noun, "")
        plural = noun.en_plural != "" and self.rng.random() < 0.2
        return NounPhrase(noun, self.rng.choice(("the", "the", *POSSESSIVES)), plural)

    def target(self, verb: Verb, subject: Nominal | None, closed: bool, definite: bool) -> Nominal:
        """Draw an object."""
        if "person" in verb.objects and verb.frame == "object" and self.rng.random() < 0.18:
            return self.object_pronoun(subject)
        if self.chance(0.06):
            return self.pair(verb.objects)
        return self.noun_phrase(self.weighted(nouns_of(verb.objects)), closed, definite)

    def recipient(self, subject: Nominal | None, closed: bool) -> Nominal:
        """Draw a recipient (dative object)."""
        if self.rng.random() < 0.25:
            return self.object_pronoun(subject)
        return self.noun_phrase(self.weighted(nouns_of(PERSONS)), closed, definite=True)

    def object_pronoun(self, subject: Nominal | None) -> Pronoun:
        """Draw a pronoun that cannot refer to the subject, because that would need a reflexive pronoun."""
        others = ["he", "she", "they"]
        if isinstance(subject, NounPhrase | Pair):
            others += ["I", "we", "you"]
        return Pronoun(self.rng.choice(others))

    def noun_phrase(
        self, noun: Noun, closed: bool = False, definite: bool = False, opening: bool = False
    ) -> NounPhrase:
        """Draw the noun phrase of a noun.

        Args:
            noun: the noun.
            closed: without a relative clause.
            definite: with a definite determiner.
            opening: with a determiner, because the phrase may open a sentence: there an upper-case adjective
                or noun would be a rare word.
        """
        rng = self.rng
        if noun.kinds & NAMED:
            return NounPhrase(noun, "")
        plural = "mass" not in noun.kinds and rng.random() < 0.28
        if definite:
            dets = DEFINITE_DETERMINERS
        elif "mass" in noun.kinds:
            dets = MASS_DETERMINERS
        else:
            dets = PLURAL_DETERMINERS if plural else SINGULAR_DETERMINERS
        det = rng.choice(dets) or ("the" if opening else "")
        number = None
        if plural and det in ("the", "", *POSSESSIVES) and rng.random() < 0.3:
            large = det != "" and rng.random() < 0.3
            number = Fixed((self.number(20, 49) if large else self.number(2, 12),))
        adjectives = self.adjectives(noun)
        draw = rng.random() / self.richness
        of = modifier = relative = None
        if draw < 0.07 and "mass" not in noun.kinds and det not in POSSESSIVES:
            of = self.owner()
        elif draw < 0.13:
            modifier = self.modifier(noun)
        elif draw < 0.38 and not closed and self.depth < 2:
            self.depth += 1
            relative = self.relative(Gap(noun, plural))
            self.depth -= 1
        return NounPhrase(noun, det, plural, number, adjectives, of, modifier, relative)

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        """Draw up to two adjectives."""
        if not self.chance(0.55):
            return ()
        first, second = self.weighted(adjectives_of(noun.kinds)), self.weighted(adjectives_of(noun.kinds))
        if first.rank < second.rank and self.chance(0.4):
            return first, second
        return (first,)

    def owner(self) -> NounPhrase:
        """Draw the noun phrase of a genitive."""
        noun = self.weighted(nouns_of(PERSONS))
        adjectives = self.adjectives(noun) if self.chance(0.3) else ()
        return NounPhrase(
            noun,
            self.rng.choice(("the", "the", *POSSESSIVES)),
            self.rng.random() < 0.15,
            adjectives=adjectives,
        )

    def modifier(self, noun: Noun) -> PrepPhrase | None:
        """Draw a prepositional phrase that describes a noun."""
        if "person" in noun.kinds:
            preposition = self.rng.choice((lex.WITH, lex.WITH, lex.WITHOUT, lex.FROM))
        elif "thing" in noun.kinds:
            preposition = lex.FOR
        else:
            return None
        noun = self.weighted(nouns_of(preposition.kinds))
        if "city" in noun.kinds:
            return PrepPhrase(preposition, NounPhrase(noun, ""))
        det = self.rng.choice(("the", "a", *POSSESSIVES))
        return PrepPhrase(preposition, NounPhrase(noun, det, adjectives=self.adjectives(noun)))

    def relative(self, gap: Gap) -> Clause:
        """Draw a relative clause with this gap."""
        raise NotImplementedError
