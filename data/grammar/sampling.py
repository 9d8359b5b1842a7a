"""Sampling of sentences of the embedded grammar.

An English sentence must have only one German translation, so ambiguous attachments are not drawn:

- A phrase with a relative clause is the last one of its clause; a later phrase could belong to either clause.
- "with", "without", "from" and "for" describe nouns only, prepositions of place clauses only.
- Nothing else follows a verb that has a complement clause.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

from data.grammar import lexicon as lex
from data.grammar.english import english
from data.grammar.german import german
from data.grammar.lexicon import Noun, Verb
from data.grammar.phrases import (
    PERSONS,
    PhraseSampler,
    T,
    adjectives_of,
    cumulative_weights,
    nouns_of,
    verbs_of,
)
from data.grammar.trees import (
    Clause,
    Fixed,
    Gap,
    Nominal,
    NounPhrase,
    Predicate,
    PrepPhrase,
    Pronoun,
    Sentence,
    Subordinate,
    Token,
)

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


@dataclass(frozen=True, kw_only=True)
class Given:
    """Parts of a clause that are fixed before it is drawn; ``noun`` is the antecedent of a Gap subject.

    A ``bare`` clause has no subject.
    """

    subject: Nominal | None = None
    verb: Verb | None = None
    target: Nominal | None = None
    recipient: Nominal | None = None
    place: PrepPhrase | None = None
    question: Fixed | None = None
    noun: Noun | None = None
    bare: bool = False


NO_PARTS = Given()
BARE = Given(bare=True)


class Sampler(PhraseSampler):
    """Sampler of one sentence."""

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
            given = Given(question=self.fixed(lex.QUESTIONS), verb=self.verb("person", simple=True))
            return Sentence(self.clause(tense, given, front="question"), asks=True)
        if (
            kind == "yes-no"
        ):  # with an auxiliary: main verbs at the start of a German sentence would be rare forms
            verb = lex.BE if tense == "present" else None
            return Sentence(self.clause(tense, Given(verb=verb), front=""), asks=True)
        if kind == "subject":
            given = Given(subject=Pronoun("who"), verb=self.verb("person"))
            return Sentence(self.clause(tense, given), asks=True)
        verb = self.weighted(verbs_of("object"))
        target: Nominal = Pronoun("who")
        if kind == "which" or "person" not in verb.objects:
            noun = self.weighted(nouns_of(verb.objects - {"city"}))
            target = NounPhrase(noun, "which", plural=noun.en_plural != "" and self.rng.random() < 0.3)
        return Sentence(self.clause(tense, Given(verb=verb, target=target), front="object"), asks=True)

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
        self, tense: str, given: Given = NO_PARTS, *, front: str = "subject", fronting: bool = False
    ) -> Clause:
        """Draw a clause.

        Args:
            tense: tense or modal verb; see ``fitting``.
            given: parts that are already fixed.
            front: name of the first part.
            fronting: allow the time or the place as first part instead.
        """
        rng = self.rng
        if given is NO_PARTS and rng.random() < 0.02:
            given = Given(verb=rng.choice(lex.WEATHER), subject=Pronoun("it"))
        verb = given.verb or self.verb("person" if given.bare else "", simple=given.bare or self.depth > 0)
        noun = given.noun or (self.weighted(nouns_of(BE_SUBJECTS)) if verb is lex.BE else None)
        subject = given.subject
        if subject is None and not given.bare:
            subject = self.subject(verb) if noun is None else self.noun_phrase(noun, opening=True)
        tense = self.fitting(tense, verb, subject)
        plain = verb.frame not in COMPLEX_FRAMES
        free = plain and given.question is None
        brief = verb is lex.BE or given.bare
        times = self.times(tense, brief) if free and self.chance(0.4) else None
        place = given.place
        if place is None and free and verb.frame in ("object", "none") and self.chance(0.35):
            place = self.prep_phrase(lex.PLACES, closed=times is not None or fronting)
        if fronting and (times or place) and rng.random() < 0.5:
            front = rng.choice([name for name, value in (("times", times), ("place", place)) if value])
        manner = None
        if verb.frame in ("none", "object", "direction") and "person" in verb.subjects and self.chance(0.12):
            manner = self.manner(verb)
        trailing = (place is not None and front != "place") or (times is not None and front != "times")
        closed = trailing or manner is not None
        negated = self.negated(given, subject) and plain
        target, recipient, direction = given.target, given.recipient, None
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
            manner, place, times, given.question, complement, front,
        )  # fmt: skip

    def fitting(self, tense: str, verb: Verb, subject: Nominal | None) -> str:
        """Replace a tense that does not fit the verb or would give a very rare form."""
        if verb is lex.BE and tense not in ("past", "will", "must"):
            return "present"
        if isinstance(subject, Pronoun) and subject.en in ("I", "you") and verb.de not in COMMON_VERBS:
            tense = "past" if tense == "present" else tense
        # otherwise "you read" could be present or past
        return "will" if tense == "past" and verb.past == verb.en else tense

    def negated(self, given: Given, subject: Nominal | None) -> bool:
        """Decide whether a clause is negated; its object is then definite, else German would need "kein"."""
        if given.bare or (isinstance(subject, NounPhrase) and subject.det == "no"):
            return False
        return self.chance(0.15)

    def verb(self, subject_kind: str = "", simple: bool = False) -> Verb:
        """Draw a verb.

        Args:
            subject_kind: kind of nouns that the verb allows as subject; "" for any verb.
            simple: draw a verb without a complement clause.
        """
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
            given = Given(verb=self.verb("person", simple=True))
            return Subordinate(self.fixed(lex.QUESTIONS), self.clause(self.tense(), given))
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
            given = Given(verb=self.weighted(verbs_of("recipient")), recipient=gap)
            return self.clause(self.tense(), given, front="recipient")
        if kind == "other" and noun.kinds & PLACE_KINDS:
            preposition = self.rng.choice([p for p in lex.PLACES if p.kinds & noun.kinds])
            verb = self.weighted(verbs_of("none" if self.rng.random() < 0.6 else "object"))
            given = Given(verb=verb, place=PrepPhrase(preposition, gap))
            return self.clause(self.tense(), given, front="place")
        verbs = [verb for verb in verbs_of("object")[0] if verb.objects & noun.kinds]
        if kind != "subject" and verbs:
            verb = self.weighted((verbs, cumulative_weights(len(verbs))))
            return self.clause(self.tense(), Given(verb=verb, target=gap), front="object")
        agent_kinds = sorted(noun.kinds & AGENT_KINDS)
        verb = self.verb(agent_kinds[0], simple=True) if agent_kinds and self.rng.random() < 0.8 else lex.BE
        return self.clause(self.tense(), Given(verb=verb, subject=gap, noun=noun))

    def whose(self, gap: Gap) -> Clause:
        """Draw a relative clause with "whose"."""
        thing = self.rng.random() < 0.6
        owned = self.weighted(nouns_of(OWNED_KINDS if thing else PERSONS))
        plural = owned.en_plural != "" and self.rng.random() < 0.25
        subject = NounPhrase(owned, "whose", plural, adjectives=self.adjectives(owned), owner=gap)
        verb = lex.BE if thing else self.verb("person", simple=True)
        return self.clause(self.tense(), Given(verb=verb, subject=subject, noun=owned))


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


# Splits of the embedded corpus, with gold links between the words of a pair.


class AlignedPair(NamedTuple):
    """An English sentence, its German translation, and the gold links between their words."""

    src: str
    tgt: str
    links: str
    """Pharaoh format: "i-j" links source word i to target word j, counted from 0 over ``split_words``."""


class Grammar(NamedTuple):
    """Sampler of a variety of the grammar, and bounds, inclusive, on the words of either language."""

    sampler: type[Sampler]
    usual: tuple[int, int]
    """Bounds for all splits but ``test_long``; punctuation is not counted."""
    long: tuple[int, int]


GRAMMARS = {
    "full": Grammar(Sampler, (4, 25), (26, 40)),
    "short": Grammar(ShortSampler, (4, 15), (16, 25)),
}


def embedded_splits(
    *,
    seed: int = 1,
    train: int = 20_000,
    valid: int = 500,
    test: int = 1_000,
    test_long: int = 500,
    grammar: str = "full",
) -> dict[str, list[AlignedPair]]:
    """Generate the splits of the embedded corpus, a function of the arguments alone.

    No English and no German sentence occurs twice in the corpus. The sentences of ``test_long`` are longer
    than all others; they come from the same rules and the same lexicon.

    Args:
        seed: seed of the generator.
        train: number of pairs in the split of this name; likewise the other three.
        valid: see ``train``.
        test: see ``train``.
        test_long: see ``train``.
        grammar: of ``GRAMMARS``.

    Returns:
        The pairs of each split.
    """
    rng = random.Random(seed)
    seen: set[str] = set()
    sizes = {"test": test, "test_long": test_long, "valid": valid, "train": train}
    splits = {
        name: _unseen_pairs(rng, size, GRAMMARS[grammar], seen, long=name == "test_long")
        for name, size in sizes.items()
    }
    return {name: splits[name] for name in ("train", "valid", "test", "test_long")}


def realise(tree: Sentence) -> AlignedPair:
    """Render a tree in both languages and link the words that realise the same part of it."""
    return _pair(english(tree), german(tree))


def _unseen_pairs(
    rng: random.Random, size: int, grammar: Grammar, seen: set[str], *, long: bool
) -> list[AlignedPair]:
    """Draw ``size`` pairs with sentences that are not in ``seen``, and add them to it."""
    bounds = grammar.long if long else grammar.usual
    pairs: list[AlignedPair] = []
    while len(pairs) < size:
        tree = grammar.sampler(rng, long=long).sentence()
        src, tgt = english(tree), german(tree)
        if not all(bounds[0] <= _count_words(side) <= bounds[1] for side in (src, tgt)):
            continue
        pair = _pair(src, tgt)
        if pair.src not in seen and pair.tgt not in seen:
            seen.update((pair.src, pair.tgt))
            pairs.append(pair)
    return pairs


def _count_words(tokens: list[Token]) -> int:
    return sum(token.text not in ",.?" for token in tokens)


def _pair(src: list[Token], tgt: list[Token]) -> AlignedPair:
    tgt_positions: dict[tuple[int, str], list[int]] = {}
    for j, token in enumerate(tgt):
        for tag in token.tags:
            tgt_positions.setdefault(tag, []).append(j)
    links = {(i, j) for i, token in enumerate(src) for tag in token.tags for j in tgt_positions.get(tag, ())}
    return AlignedPair(sentence_text(src), sentence_text(tgt), " ".join(f"{i}-{j}" for i, j in sorted(links)))


def sentence_text(tokens: list[Token]) -> str:
    """Join tokens to a sentence: no space before punctuation, first letter upper case."""
    text = "".join(token.text if token.text in ",.?" else " " + token.text for token in tokens).strip()
    return text[0].upper() + text[1:]
