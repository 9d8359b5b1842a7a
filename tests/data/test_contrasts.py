"""Contrastive pairs: worked out by hand, and properties of many."""

import random
from collections import Counter

import pytest

from data.grammar import BINS, PHENOMENA, Contrast, contrastive_pairs, realise
from data.grammar import lexicon as lex
from data.grammar.contrasts import contrasts_of
from data.grammar.sampling import Sampler
from data.grammar.trees import (
    Clause,
    Fixed,
    Gap,
    NounPhrase,
    Pronoun,
    Relative,
    Sentence,
    Subordinate,
)
from data.vocabulary import split_words

NOUNS = {noun.en: noun for noun in lex.NOUNS}
VERBS = {verb.en: verb for verb in lex.VERBS}
TODAY = "today", "heute"


def found(tree: Sentence, phenomenon: str) -> list[tuple[int, str]]:
    contrasts = contrasts_of(tree, random.Random(0))
    assert {each.right for each in contrasts} <= {realise(tree).tgt}
    return [(each.distance, each.wrong) for each in contrasts if each.phenomenon == phenomenon]


def seen_man(**parts) -> Clause:
    """Der Mann, den ich sehe, schläft ..."""
    inner = Clause(Pronoun("I"), VERBS["see"], object=Gap(), front="object")
    return Clause(NounPhrase(NOUNS["man"], relative=Relative(inner)), VERBS["sleep"], **parts)


def test_agreement_over_a_relative_clause():
    tree = Sentence(seen_man())
    assert realise(tree).tgt == "Der Mann, den ich sehe, schläft."
    assert found(tree, "agreement") == [(3, "Der Mann, den ich sehe, schlafen.")]


@pytest.mark.parametrize(
    ("tense", "right", "wrong"),
    [("past", "haben geschlafen", "hat geschlafen"), ("can", "können schlafen", "kann schlafen")],
)
def test_agreement_of_auxiliaries_and_plurals(tense: str, right: str, wrong: str):
    tree = Sentence(Clause(NounPhrase(NOUNS["man"], plural=True), VERBS["sleep"], tense))
    assert realise(tree).tgt == f"Die Männer {right}."
    assert found(tree, "agreement") == [(0, f"Die Männer {wrong}.")]


def test_pronouns_and_verbs_before_their_subject_have_no_agreement():
    assert found(Sentence(Clause(Pronoun("he"), VERBS["sleep"])), "agreement") == []
    clause = Clause(NounPhrase(NOUNS["man"]), VERBS["sleep"], times=Fixed((TODAY,)), front="times")
    assert found(Sentence(clause), "agreement") == []


def test_a_verb_that_is_last_goes_next_to_its_subject():
    because = Subordinate(Fixed((("because", "weil"),)), seen_man(times=Fixed((TODAY,))))
    tree = Sentence(Clause(Pronoun("he"), VERBS["laugh"]), after=(because,))
    assert realise(tree).tgt == "Er lacht, weil der Mann, den ich sehe, heute schläft."
    assert found(tree, "verb last") == [(1, "Er lacht, weil der Mann, den ich sehe, schläft heute.")]


def test_a_verb_that_is_second_goes_after_its_subject():
    tree = Sentence(seen_man(times=Fixed((TODAY,)), front="times"))
    assert realise(tree).tgt == "Heute schläft der Mann, den ich sehe."
    assert found(tree, "verb second") == [(5, "Heute der Mann, den ich sehe, schläft.")]


@pytest.fixture(scope="module")
def many() -> list[Contrast]:
    rng = random.Random(11)
    trees = [Sampler(rng, long=number % 4 == 0).sentence() for number in range(600)]
    return [each for tree in trees for each in contrasts_of(tree, rng)]


def test_pairs_differ_in_one_point(many: list[Contrast]):
    counts = Counter(each.phenomenon for each in many)
    assert set(counts) == set(PHENOMENA)
    for each in many:
        right, wrong = split_words(each.right.lower()), split_words(each.wrong.lower())
        assert each.right != each.wrong
        assert not any(bad in each.wrong for bad in (",,", ",.", ",?", " ,", ",  "))
        assert each.wrong[0].isupper()
        if each.phenomenon.startswith("verb "):
            words = [[word for word in side if word not in ",.?"] for side in (right, wrong)]
            assert sorted(words[0]) == sorted(words[1])
            places = [place for place, pair in enumerate(zip(*words, strict=True)) if len(set(pair)) > 1]
            assert places[-1] - places[0] <= each.distance
        else:
            assert sum(one != other for one, other in zip(right, wrong, strict=True)) == 1


def test_other_nouns_fit_and_other_verbs_are_other_words(many: list[Contrast]):
    genders = {noun.de.lower(): noun.gender for noun in lex.NOUNS}
    for each in many:
        if each.phenomenon in ("noun", "verb"):
            pairs = zip(split_words(each.right.lower()), split_words(each.wrong.lower()), strict=True)
            ((right, wrong),) = [pair for pair in pairs if pair[0] != pair[1]]
            if each.phenomenon == "noun":
                assert genders[right] == genders[wrong]


def test_the_set_is_balanced_and_always_the_same():
    pairs = contrastive_pairs(per_group=2)
    assert contrastive_pairs(per_group=2) == pairs
    assert contrastive_pairs(per_group=2, seed=5) != pairs
    counts = Counter((each.phenomenon, each.group) for each in pairs)
    assert set(counts.values()) == {2}
    assert len(counts) == len(BINS) + 2 * (len(BINS) - 1) + 2
    assert len({each.src for each in pairs}) == len(pairs)
    with pytest.raises(ValueError, match="per_group must be at least 1"):
        contrastive_pairs(per_group=0)
