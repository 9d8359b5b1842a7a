"""Sampling of sentences of the embedded grammar.

An English sentence must have only one German translation, so ambiguous attachments are not drawn:

- A phrase with a relative clause is the last one of its clause; a later phrase could belong to either clause.
- "with", "without", "from" and "for" describe nouns only, prepositions of place clauses only.
- Nothing else follows a verb that has a complement clause.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TypeVar

from data.grammar import lexicon as lex
from data.grammar.lexicon import MONTHS, WEEKDAYS, Adjective, Noun, Preposition, Verb
from data.grammar.trees import (
    Clause,
    Fixed,
    Gap,
    Nominal,
    NounPhrase,
    Pair,
    Predicate,
    PrepPhrase,
    Pronoun,
    Sentence,
    Subordinate,
)

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


# The parts of sentences, and how often they are drawn.


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

FRAME_WEIGHTS = {
    "object": 40,
    "none": 13,
    "recipient": 14,
    "put": 6,
    "direction": 9,
    "that": 6,
    "whether": 2,
    "zu": 5,
    "be": 9,
}
SIMPLE_FRAMES = ("object", "none", "recipient", "put", "direction", "be")
COMPLEX_FRAMES = ("that", "whether", "zu")
OWNED_KINDS = frozenset({"thing", "animal", "room"})
AGENT_KINDS = frozenset({"person", "animal"})
PLACE_KINDS = frozenset({"room", "surface", "ground", "edge", "tree", "vehicle"})
BE_SUBJECTS = frozenset({"person", "animal", "thing", "room", "food", "drink", "name", "big", "art"})
MODALS = ("can", "must", "want", "will", "should", "may")
COMMON_VERBS = frozenset(verb.de for verb in lex.VERBS[:30])
"""Verbs that may be in the present tense with "I" or "you"; forms of others would be too rare to learn."""


@cache
def nouns_of(kinds: frozenset[str]) -> tuple[list[Noun], list[float]]:
    """Return the nouns of any of these kinds with cumulative weights; earlier nouns weigh more."""
    return with_weights(noun for noun in lex.NOUNS if noun.kinds & kinds)


@cache
def verbs_of(frame: str) -> tuple[list[Verb], list[float]]:
    """Return the verbs of a frame with cumulative weights."""
    return with_weights(verb for verb in lex.VERBS if verb.frame == frame)


@cache
def adjectives_of(kinds: frozenset[str]) -> tuple[list[Adjective], list[float]]:
    """Return the adjectives that describe nouns of these kinds, with cumulative weights."""
    return with_weights(adjective for adjective in lex.ADJECTIVES if adjective.kinds & kinds)


def with_weights(entries: Iterable[T]) -> tuple[list[T], list[float]]:
    """Return entries with cumulative sums of 1 / (rank + 12): mildly Zipfian, so that none is rare."""
    chosen = list(entries)
    return chosen, list(accumulate(1.0 / (rank + 12.0) for rank in range(len(chosen))))


@dataclass(frozen=True, kw_only=True)
class FixedParts:
    """Parts of a clause that are fixed before it is drawn; ``noun`` is the antecedent of a Gap subject.

    A ``bare`` clause has no subject.
    """

    subject: Nominal | None = None
    verb: Verb | None = None
    target: Nominal | None = None
    recipient: Nominal | None = None
    location: PrepPhrase | None = None
    question: Fixed | None = None
    noun: Noun | None = None
    bare: bool = False


NO_PARTS = FixedParts()
BARE = FixedParts(bare=True)


class Sampler:
    """Sampler of one sentence.

    ``richness``, from 0.3 to 1, is a factor on the probabilities of all optional parts, ``depth`` is the
    number of relative clauses around the current phrase.
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

    def sentence(self) -> Sentence:
        """Draw a sentence."""
        if not self.long and self.rng.random() < 0.1:
            return self.question()
        tense = self.tense()
        before = self.subordinate(tense) if self.chance(0.25) else None
        main = self.clause(tense, fronting=before is None)
        after: list[Subordinate] = []
        if self.chance(0.3):
            after.append(self.subordinate(tense))
        elif main.verb.frame not in ("be", "zu") and main.verb not in lex.WEATHER and self.chance(0.15):
            after.append(Subordinate(Fixed((("in order", "um"),)), self.clause("present", BARE)))
        if not self.chance(0.3):
            return Sentence(main, before=before, after=tuple(after))
        second = Sentence(self.clause(self.tense(), fronting=True))
        conjunction = self.fixed([("and", "und"), ("but", "aber")])
        return Sentence(main, before=before, after=tuple(after), conjunction=conjunction, second=second)

    def question(self) -> Sentence:
        """Draw a yes-no question or one with a question word."""
        kind = self.rng.choice(("yes-no", "adverb", "subject", "object", "which"))
        tense = self.tense()
        if kind == "adverb":
            parts = FixedParts(question=self.fixed(lex.QUESTIONS), verb=self.verb("person", simple=True))
            return Sentence(self.clause(tense, parts, front="question"), asks=True)
        if (
            kind == "yes-no"
        ):  # with an auxiliary: main verbs at the start of a German sentence would be rare forms
            verb = lex.BE if tense == "present" else None
            return Sentence(self.clause(tense, FixedParts(verb=verb), front=""), asks=True)
        if kind == "subject":
            parts = FixedParts(subject=Pronoun("who"), verb=self.verb("person"))
            return Sentence(self.clause(tense, parts), asks=True)
        verb = self.weighted(verbs_of("object"))
        target: Nominal = Pronoun("who")
        if kind == "which" or "person" not in verb.objects:
            noun = self.weighted(nouns_of(verb.objects - {"city"}))
            target = NounPhrase(noun, "which", plural=noun.en_plural != "" and self.rng.random() < 0.3)
        return Sentence(self.clause(tense, FixedParts(verb=verb, target=target), front="object"), asks=True)

    # Clauses.

    def subordinate(self, tense: str) -> Subordinate:
        """Draw an adverbial clause whose tense fits the ``tense`` of its main clause."""
        tense = "past" if tense == "past" else "present"
        pairs = [pair for pair in lex.CONJUNCTIONS if tense == "present" or pair[0] != "if"]
        return Subordinate(self.fixed(pairs), self.clause(tense))

    def tense(self) -> str:
        """Draw a tense or a modal verb."""
        draw = self.rng.random()
        if draw < 0.45:
            return "present"
        return "past" if draw < 0.75 else self.rng.choice(MODALS)

    def clause(
        self, tense: str, parts: FixedParts = NO_PARTS, *, front: str = "subject", fronting: bool = False
    ) -> Clause:
        """Draw a clause.

        ``parts`` are fixed before, ``front`` names the first part, which time or place may replace with
        ``fronting``; for ``tense`` see ``fitting``.
        """
        rng = self.rng
        if parts is NO_PARTS and rng.random() < 0.02:
            parts = FixedParts(verb=rng.choice(lex.WEATHER), subject=Pronoun("it"))
        verb = parts.verb or self.verb("person" if parts.bare else "", simple=parts.bare or self.depth > 0)
        noun = parts.noun or (self.weighted(nouns_of(BE_SUBJECTS)) if verb is lex.BE else None)
        subject = parts.subject
        if subject is None and not parts.bare:
            subject = self.subject(verb) if noun is None else self.noun_phrase(noun, opening=True)
        tense = self.fitting(tense, verb, subject)
        plain = verb.frame not in COMPLEX_FRAMES
        free = plain and parts.question is None
        brief = verb is lex.BE or parts.bare
        times = self.times(tense, brief) if free and self.chance(0.4) else None
        location = parts.location
        if location is None and free and verb.frame in ("object", "none") and self.chance(0.35):
            location = self.prep_phrase(lex.PLACES, closed=times is not None or fronting)
        if fronting and (times or location) and rng.random() < 0.5:
            front = rng.choice([name for name, value in (("times", times), ("location", location)) if value])
        manner = None
        if verb.frame in ("none", "object", "direction") and "person" in verb.subjects and self.chance(0.12):
            manner = self.manner(verb)
        trailing = (location is not None and front != "location") or (times is not None and front != "times")
        closed = trailing or manner is not None
        negated = self.negated(parts, subject) and plain
        target, recipient, direction = parts.target, parts.recipient, None
        if target is None and verb.frame in ("object", "recipient", "put"):
            target = self.target(verb, subject, closed or verb.frame != "object", negated)
        if recipient is None and verb.frame == "recipient":
            recipient = self.recipient(subject, closed)
        if verb.frame in ("direction", "put"):
            direction = self.prep_phrase(lex.TARGETS if verb.frame == "put" else lex.DIRECTIONS, closed)
        predicate = self.predicate(noun, subject) if noun is not None and verb is lex.BE else None
        frequency = None
        if free and not (negated or brief) and self.chance(0.12):
            frequency = self.fixed(lex.WORDS_BEFORE_VERB)
        complement = self.complement(verb.frame)
        return Clause(
            subject, verb, tense, negated, target, recipient, predicate, frequency, direction,
            manner, location, times, parts.question, complement, front,
        )  # fmt: skip

    def fitting(self, tense: str, verb: Verb, subject: Nominal | None) -> str:
        """Replace a tense that does not fit the verb or would give a very rare form."""
        if verb is lex.BE and tense not in ("past", "will", "must"):
            return "present"
        if isinstance(subject, Pronoun) and subject.en in ("I", "you") and verb.de not in COMMON_VERBS:
            tense = "past" if tense == "present" else tense
        # otherwise "you read" could be present or past
        return "will" if tense == "past" and verb.past == verb.en else tense

    def negated(self, parts: FixedParts, subject: Nominal | None) -> bool:
        """Decide whether a clause is negated; its object is then definite, else German would need "kein"."""
        if parts.bare or (isinstance(subject, NounPhrase) and subject.det == "no"):
            return False
        return self.chance(0.15)

    def verb(self, subject_kind: str = "", simple: bool = False) -> Verb:
        """Draw a verb that allows a kind of nouns as subject; a ``simple`` one has no complement."""
        frames = SIMPLE_FRAMES if simple else tuple(FRAME_WEIGHTS)
        while True:
            frame = self.rng.choices(frames, [FRAME_WEIGHTS[name] for name in frames])[0]
            verb = lex.BE if frame == "be" else self.weighted(verbs_of(frame))
            if not subject_kind or subject_kind in verb.subjects:
                return verb

    def complement(self, frame: str) -> Subordinate | None:
        """Draw the complement clause of verbs such as say, ask and try."""
        if frame == "that":
            return Subordinate(Fixed((("that", "dass"),)), self.clause(self.tense()))
        if frame == "whether":
            if self.rng.random() < 0.5:
                return Subordinate(Fixed((("whether", "ob"),)), self.clause(self.tense()))
            parts = FixedParts(verb=self.verb("person", simple=True))
            return Subordinate(self.fixed(lex.QUESTIONS), self.clause(self.tense(), parts))
        return Subordinate(None, self.clause("present", BARE)) if frame == "zu" else None

    def predicate(self, noun: Noun, subject: Nominal | None) -> Predicate:
        """Draw an age, or a predicative adjective that does not already describe the subject."""
        if "person" in noun.kinds and self.rng.random() < 0.15:
            return Predicate(lex.ADJECTIVES[0], Fixed((self.number(20, 49), ("years", "Jahre"))))
        adjective = self.weighted(adjectives_of(noun.kinds))
        while isinstance(subject, NounPhrase) and adjective in subject.adjectives:
            adjective = self.weighted(adjectives_of(noun.kinds))
        return Predicate(adjective, self.fixed(lex.DEGREES) if self.chance(0.5) else None)

    def relative(self, gap: Gap) -> Clause:
        """Draw a relative clause that describes the noun of the gap."""
        noun = gap.noun
        kind = self.rng.choice(("subject", "object", "object", "other"))
        if kind == "other" and "person" in noun.kinds:
            if self.rng.random() < 0.5:
                return self.whose(gap)
            parts = FixedParts(verb=self.weighted(verbs_of("recipient")), recipient=gap)
            return self.clause(self.tense(), parts, front="recipient")
        if kind == "other" and noun.kinds & PLACE_KINDS:
            preposition = self.rng.choice([p for p in lex.PLACES if p.kinds & noun.kinds])
            verb = self.weighted(verbs_of("none" if self.rng.random() < 0.6 else "object"))
            parts = FixedParts(verb=verb, location=PrepPhrase(preposition, gap))
            return self.clause(self.tense(), parts, front="location")
        verbs = [verb for verb in verbs_of("object")[0] if verb.objects & noun.kinds]
        if kind != "subject" and verbs:
            verb = self.weighted(with_weights(verbs))
            return self.clause(self.tense(), FixedParts(verb=verb, target=gap), front="object")
        agent_kinds = sorted(noun.kinds & AGENT_KINDS)
        verb = self.verb(agent_kinds[0], simple=True) if agent_kinds and self.rng.random() < 0.8 else lex.BE
        return self.clause(self.tense(), FixedParts(verb=verb, subject=gap, noun=noun))

    def whose(self, gap: Gap) -> Clause:
        """Draw a relative clause with "whose"."""
        thing = self.rng.random() < 0.6
        owned = self.weighted(nouns_of(OWNED_KINDS if thing else PERSONS))
        plural = owned.en_plural != "" and self.rng.random() < 0.25
        subject = NounPhrase(owned, "whose", plural, adjectives=self.adjectives(owned), owner=gap)
        verb = lex.BE if thing else self.verb("person", simple=True)
        return self.clause(self.tense(), FixedParts(verb=verb, subject=subject, noun=owned))


class ShortSampler(Sampler):
    """Sampler of chained clauses with few words, whose German verbs stand last."""

    def weighted(self, table: tuple[list[T], list[float]]) -> T:
        """Draw one of the first five entries of a list, all equally often."""
        return self.rng.choice(table[0][:5])

    def sentence(self) -> Sentence:
        """Draw one or two main clauses, or if it is long two or three, some with a clause of reason."""
        sentence: Sentence | None = None
        for _ in range(self.rng.choice((2, 3) if self.long else (1, 2))):
            reason = Subordinate(Fixed((("because", "weil"),)), self.simple_clause())
            after = (reason,) if self.rng.random() < 0.3 else ()
            conjunction = self.fixed([("and", "und"), ("but", "aber")]) if sentence else None
            sentence = Sentence(self.simple_clause(), after=after, conjunction=conjunction, second=sentence)
        assert sentence is not None
        return sentence

    def simple_clause(self) -> Clause:
        """Draw a clause of subject, verb and objects."""
        verb = self.weighted(verbs_of(self.rng.choice(("object", "object", "recipient"))))
        subject, target = self.simple_phrase(verb.subjects), self.simple_phrase(verb.objects)
        recipient = self.simple_phrase(PERSONS) if verb.frame == "recipient" else None
        tense = self.fitting(self.rng.choice(("past", "will", "must")), verb, subject)
        return Clause(subject, verb, tense, object=target, recipient=recipient)

    def simple_phrase(self, kinds: frozenset[str]) -> NounPhrase:
        """Draw a definite noun phrase with at most one adjective."""
        noun = self.weighted(nouns_of(kinds))
        adjectives = (self.weighted(adjectives_of(noun.kinds)),) if self.rng.random() < 0.5 else ()
        return NounPhrase(noun, self.rng.choice(("the", "the", "my")), adjectives=adjectives)
