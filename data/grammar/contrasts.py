"""Contrastive pairs: a right and a wrong German translation that differ in one point.

A model passes a pair if it gives the right one a higher probability (Sennrich 2017, "How Grammatical is
Character-level Neural Machine Translation?"). The pairs come from the trees of the embedded corpus, so the
wrong word or place is known, and how far it is from the word that decides it.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from data.grammar import GRAMMARS, count_words, sentence_text
from data.grammar import lexicon as lex
from data.grammar.english import english
from data.grammar.german import finite_form, tidy_commas, untidy_german
from data.grammar.lexicon import Noun, Verb
from data.grammar.sampling import Sampler
from data.grammar.trees import Clause, Gap, NounPhrase, Pronoun, Sentence, Subordinate, Token, person_of, tag

BINS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 99))
"""Smallest and largest distance of each group that is reported together."""
MAX_SENTENCES = 100_000
"""Sentences that are drawn at most; a group that is still too small stays so."""


class Contrast(NamedTuple):
    """A source sentence with a right translation and a wrong one."""

    phenomenon: str
    distance: int
    """Distance in German words, punctuation not counted; 0 where the phenomenon has none."""
    src: str
    right: str
    wrong: str

    @property
    def group(self) -> tuple[int, int]:
        """The bin of the distance."""
        return next((low, high) for low, high in BINS if low <= self.distance <= high)


def contrastive_pairs(*, seed: int = 1_000_003, per_group: int = 50) -> list[Contrast]:
    """Generate contrastive pairs, a function of the arguments alone, by phenomenon and distance.

    Half of the sentences are as long as those of the split ``test_long``. A sentence gives at most one pair,
    and a phenomenon at most ``per_group`` per bin of distances. The seed of a corpus gives other sentences.
    """
    if per_group < 1:
        raise ValueError(f"per_group must be at least 1, found {per_group}")
    rng, counts, pairs = random.Random(seed), Counter[tuple[str, tuple[int, int]]](), []
    seen: set[str] = set()
    missing = {(name, group) for name in PHENOMENA for group in _groups(name)}
    for number in range(MAX_SENTENCES):
        long = bool(number % 2)
        bounds = GRAMMARS["full"].long if long else GRAMMARS["full"].usual
        tree = Sampler(rng, long=long).sentence()
        contrasts = [pair for pair in contrasts_of(tree, rng) if (pair.phenomenon, pair.group) in missing]
        if not contrasts or contrasts[0].src in seen or len(contrasts[0].src.split()) > bounds[1]:
            continue
        chosen = min(contrasts, key=lambda pair: counts[pair.phenomenon, pair.group])
        key = chosen.phenomenon, chosen.group
        seen.add(chosen.src)
        pairs.append(chosen)
        counts[key] += 1
        if counts[key] == per_group:
            missing.remove(key)
            if not missing:
                break
    order = list(PHENOMENA)
    return sorted(pairs, key=lambda pair: (order.index(pair.phenomenon), pair.distance))


def contrasts_of(tree: Sentence, rng: random.Random) -> list[Contrast]:
    """List the contrasts of a sentence, at most one per clause or noun phrase and phenomenon."""
    tokens = untidy_german(tree)  # a comma before the full stop is needed when a word moves there
    src, right = sentence_text(english(tree)), sentence_text(tidy_commas(tokens))
    contrasts = [
        Contrast(name, distance, src, right, sentence_text(tidy_commas(wrong)))
        for name, changes in PHENOMENA.items()
        for distance, wrong in changes(tree, tokens, rng)
    ]
    return [pair for pair in contrasts if pair.wrong != pair.right and pair.distance <= BINS[-1][1]]


def _groups(phenomenon: str) -> list[tuple[int, int]]:
    if phenomenon in ("noun", "verb"):
        return [BINS[0]]
    return list(BINS if phenomenon == "agreement" else BINS[1:])


Changes = Iterator[tuple[int, list[Token]]]
"""A distance and German words with one fault; the distance of an agreement are the words between the noun of
the subject and the verb, that of a moved verb those that it is moved over, else it is 0."""


def _agreements(tree: Sentence, tokens: list[Token], _: random.Random) -> Changes:
    """Give the other number to the finite verb of each clause whose subject is a noun phrase before it."""
    for clause in _nodes(tree, Clause):
        subject, verb = clause.subject, _find(tokens, tag(clause, "finite"))
        noun = _find(tokens, tag(subject, "noun")) if isinstance(subject, NounPhrase) else None
        if noun is None or verb is None or noun > verb:
            continue
        person = person_of(subject)
        form, other = (finite_form(clause, number) for number in (person, "p" if person == "3s" else "3s"))
        text = tokens[verb].text
        if form != other and text.endswith(form):
            distance = count_words(tokens[noun + 1 : verb])
            yield distance, _replaced(tokens, verb, text.removesuffix(form) + other)


def _verbs_not_last(tree: Sentence, tokens: list[Token], _: random.Random) -> Changes:
    """Move the finite verb of subordinate clauses to the place right after the subject."""
    for verb, (_start, end) in _verbs_and_subjects(
        tokens, [node.clause for node in _nodes(tree, Subordinate)]
    ):
        if end < verb:
            moved = [*tokens[:end], tokens[verb], *tokens[end:verb], *tokens[verb + 1 :]]
            yield count_words(tokens[end:verb]), moved


def _verbs_not_second(tree: Sentence, tokens: list[Token], _: random.Random) -> Changes:
    """Move the finite verb after a time or place to the place right after the subject."""
    mains = [node.main for node in _nodes(tree, Sentence) if node.main.front in ("times", "location")]
    for verb, (start, end) in _verbs_and_subjects(tokens, mains):
        if verb == start - 1:
            moved = [*tokens[:verb], *tokens[start:end], tokens[verb], *tokens[end:]]
            yield count_words(tokens[start:end]), moved


def _other_nouns(tree: Sentence, tokens: list[Token], rng: random.Random) -> Changes:
    """Replace singular nouns that have no ending by others of the same gender and kinds."""
    for phrase in _nodes(tree, NounPhrase):
        noun, index = phrase.noun, _find(tokens, tag(phrase, "noun"))
        if index is not None and not phrase.plural and not noun.weak and tokens[index].text == noun.de:
            others = [entry.de for entry in lex.NOUNS if _replaces_noun(noun, entry)]
            if others:
                yield 0, _replaced(tokens, index, rng.choice(others))


def _replaces_noun(noun: Noun, other: Noun) -> bool:
    same = (other.gender, other.kinds) == (noun.gender, noun.kinds)
    return same and not other.weak and other.de != noun.de and other.en != noun.en


def _other_verbs(tree: Sentence, tokens: list[Token], rng: random.Random) -> Changes:
    """Replace participles by those of other verbs with the same arguments and auxiliary."""
    for clause in _nodes(tree, Clause):
        verb, index = clause.verb, _find(tokens, tag(clause, "verb"))
        if index is not None and clause.tense == "past" and tokens[index].text == verb.participle:
            others = [entry.participle for entry in lex.VERBS if _replaces_verb(verb, entry)]
            if others:
                yield 0, _replaced(tokens, index, rng.choice(others))


def _replaces_verb(verb: Verb, other: Verb) -> bool:
    def arguments(entry: Verb) -> tuple[Any, ...]:
        return entry.frame, entry.case, entry.de_relation, entry.sein, bool(entry.subjects & verb.subjects)

    allowed = verb.objects <= other.objects or not verb.objects
    return arguments(other) == arguments(verb) and allowed and other.participle != verb.participle


PHENOMENA = {
    "agreement": _agreements,
    "verb last": _verbs_not_last,
    "verb second": _verbs_not_second,
    "noun": _other_nouns,
    "verb": _other_verbs,
}


def _verbs_and_subjects(tokens: list[Token], clauses: list[Clause]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Give the place of the finite verb and the span of the subject of each clause that has both."""
    for clause in clauses:
        verb, span = _find(tokens, tag(clause, "finite")), _span(tokens, clause.subject)
        if verb is not None and span is not None:
            yield verb, span


def _nodes(tree: Any, kind: type) -> Iterator[Any]:
    if isinstance(tree, kind):
        yield tree
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        for part in tree:
            yield from _nodes(part, kind)
    elif is_dataclass(tree):
        for field in fields(tree):
            yield from _nodes(getattr(tree, field.name), kind)


def _span(tokens: list[Token], subject: Any) -> tuple[int, int] | None:
    """Return begin and end of the words of a subject, a comma after its relative clause included."""
    if subject is None or isinstance(subject, Gap):
        return None
    nodes = {id(node) for node in _nodes(subject, object) if is_dataclass(node)}
    indices = [index for index, token in enumerate(tokens) if any(owner in nodes for owner, _ in token.tags)]
    if not indices:
        return None
    end = indices[-1] + 1
    closed = end < len(tokens) and tokens[end].text == "," and not isinstance(subject, Pronoun)
    return indices[0], end + (closed and not tokens[end].tags)


def _find(tokens: list[Token], wanted: tuple[int, str]) -> int | None:
    return next((index for index, token in enumerate(tokens) if wanted in token.tags), None)


def _replaced(tokens: list[Token], index: int, text: str) -> list[Token]:
    return [*tokens[:index], Token(text, tokens[index].tags), *tokens[index + 1 :]]
