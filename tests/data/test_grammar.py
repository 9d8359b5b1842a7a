"""The embedded corpus: always the same text, correct German, exact links; contrastive pairs."""

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from data.grammar import AlignedPair, embedded_splits, realise, sampling
from data.grammar import lexicon as lex
from data.grammar.contrasts import BINS, PHENOMENA, Contrast, contrastive_pairs, contrasts_of
from data.grammar.trees import Clause, Fixed, Gap, NounPhrase, Pronoun, Sentence, Subordinate
from data.vocabulary import split_words

SHA256 = {
    "train": "c29cd863953fcd279cf786f9bd534463390301b3017573a263403064d5c97ba8",
    "valid": "a85830a1c2774d15eb7033e12799bf03710130b0a90856dab80bc2eec3e8b3a5",
    "test": "cbbf8dac1845b7c50568646b1ffbcc5d7de12604e744720348170f0afbccc5c5",
    "test_long": "11ce07c4e84d20d64baf6a7e49b52b68229cc663bcdcc9654ddb0dd4cb4c1777",
}
"""Of the lines "source TAB target TAB links"; published results were trained on this text."""


def links_of(pair: AlignedPair) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in (link.split("-") for link in pair.links.split())]


def is_word(token: str) -> bool:
    return token[0].isalnum()


def test_the_text_is_that_of_the_published_results(splits):
    for name, pairs in splits.items():
        text = "".join("\t".join(pair) + "\n" for pair in pairs)
        assert hashlib.sha256(text.encode()).hexdigest() == SHA256[name], name


def test_the_corpus_depends_on_its_arguments_alone():
    sizes = {"train": 300, "valid": 20, "test": 20, "test_long": 20}
    code = f"from data.grammar import embedded_splits as s; print(ascii(s(seed=5, **{sizes})))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("0", "77")
    }
    assert printed == {ascii(embedded_splits(seed=5, **sizes))}
    assert embedded_splits(seed=5, **sizes) != embedded_splits(seed=6, **sizes)


def test_the_short_corpus_has_few_words_and_longer_sentences_in_test_long():
    short = embedded_splits(grammar="short", train=300, valid=20, test=50, test_long=50)
    words = {word.lower() for pairs in short.values() for pair in pairs for word in split_words(pair.src)}
    assert len(words) < 120
    lengths = {name: [len(pair.src.split()) for pair in pairs] for name, pairs in short.items()}
    assert max(lengths["train"]) <= 15 < min(lengths["test_long"])


def test_links_are_in_range_and_reach_every_word():
    rng = random.Random(8)
    for _ in range(2_000):
        pair = realise(sampling.Sampler(rng).sentence())
        src, tgt, links = split_words(pair.src), split_words(pair.tgt), links_of(pair)
        assert links == sorted(set(links))
        linked_src, linked_tgt = ({link[side] for link in links} for side in (0, 1))
        assert linked_src <= set(range(len(src)))
        unlinked = {word for i, word in enumerate(src) if is_word(word) and i not in linked_src}
        assert unlinked <= {"of"}, pair  # only the "of" of a date has no German
        assert {j for j, word in enumerate(tgt) if is_word(word)} <= linked_tgt <= set(range(len(tgt))), pair


def test_no_english_sentence_has_two_translations_over_seeds(splits):
    germans = {pair.src: pair.tgt for pairs in splits.values() for pair in pairs}
    rng = random.Random(9)
    for _ in range(2_000):
        pair = realise(sampling.Sampler(rng).sentence())
        assert germans.setdefault(pair.src, pair.tgt) == pair.tgt


# Contrastive pairs


NOUNS = {noun.en: noun for noun in lex.NOUNS}
VERBS = {verb.en: verb for verb in lex.VERBS}
TODAY = "today", "heute"


def mistakes(tree: Sentence, phenomenon: str) -> list[tuple[int, str]]:
    contrasts = contrasts_of(tree, random.Random(0))
    assert {contrast.right for contrast in contrasts} <= {realise(tree).tgt}
    return [
        (contrast.distance, contrast.wrong) for contrast in contrasts if contrast.phenomenon == phenomenon
    ]


def seen_man(**parts) -> Clause:
    """Der Mann, den ich sehe, schläft ..."""
    inner = Clause(Pronoun("I"), VERBS["see"], object=Gap(NOUNS["man"]), front="object")
    return Clause(NounPhrase(NOUNS["man"], relative=inner), VERBS["sleep"], **parts)


def test_agreement_over_a_relative_clause():
    tree = Sentence(seen_man())
    assert realise(tree).tgt == "Der Mann, den ich sehe, schläft."
    assert mistakes(tree, "agreement") == [(3, "Der Mann, den ich sehe, schlafen.")]


@pytest.mark.parametrize(
    ("tense", "right", "wrong"),
    [("past", "haben geschlafen", "hat geschlafen"), ("can", "können schlafen", "kann schlafen")],
)
def test_agreement_of_auxiliaries_and_plurals(tense: str, right: str, wrong: str):
    tree = Sentence(Clause(NounPhrase(NOUNS["man"], plural=True), VERBS["sleep"], tense))
    assert realise(tree).tgt == f"Die Männer {right}."
    assert mistakes(tree, "agreement") == [(0, f"Die Männer {wrong}.")]


def test_pronouns_and_verbs_before_their_subject_have_no_agreement():
    assert mistakes(Sentence(Clause(Pronoun("he"), VERBS["sleep"])), "agreement") == []
    clause = Clause(NounPhrase(NOUNS["man"]), VERBS["sleep"], times=Fixed((TODAY,)), front="times")
    assert mistakes(Sentence(clause), "agreement") == []


def test_a_verb_that_is_last_goes_next_to_its_subject():
    because = Subordinate(Fixed((("because", "weil"),)), seen_man(times=Fixed((TODAY,))))
    tree = Sentence(Clause(Pronoun("he"), VERBS["laugh"]), after=(because,))
    assert realise(tree).tgt == "Er lacht, weil der Mann, den ich sehe, heute schläft."
    assert mistakes(tree, "verb last") == [(1, "Er lacht, weil der Mann, den ich sehe, schläft heute.")]


def test_a_verb_that_is_second_goes_after_its_subject():
    tree = Sentence(seen_man(times=Fixed((TODAY,)), front="times"))
    assert realise(tree).tgt == "Heute schläft der Mann, den ich sehe."
    assert mistakes(tree, "verb second") == [(5, "Heute der Mann, den ich sehe, schläft.")]


@pytest.fixture(scope="module")
def contrasts() -> list[Contrast]:
    rng = random.Random(11)
    trees = [sampling.Sampler(rng, long=number % 4 == 0).sentence() for number in range(600)]
    return [contrast for tree in trees for contrast in contrasts_of(tree, rng)]


def test_pairs_differ_in_one_point(contrasts: list[Contrast]):
    counts = Counter(contrast.phenomenon for contrast in contrasts)
    assert set(counts) == set(PHENOMENA)
    for contrast in contrasts:
        right, wrong = split_words(contrast.right.lower()), split_words(contrast.wrong.lower())
        assert contrast.right != contrast.wrong
        assert not any(bad in contrast.wrong for bad in (",,", ",.", ",?", " ,", ",  "))
        assert contrast.wrong[0].isupper()
        if contrast.phenomenon.startswith("verb "):
            words = [[word for word in side if word not in ",.?"] for side in (right, wrong)]
            assert sorted(words[0]) == sorted(words[1])
            positions = [
                position for position, pair in enumerate(zip(*words, strict=True)) if len(set(pair)) > 1
            ]
            assert positions[-1] - positions[0] <= contrast.distance
        else:
            assert sum(one != other for one, other in zip(right, wrong, strict=True)) == 1


def test_other_nouns_have_the_same_gender(contrasts: list[Contrast]):
    genders = {noun.de.lower(): noun.gender for noun in lex.NOUNS}
    for contrast in contrasts:
        if contrast.phenomenon == "noun":
            pairs = zip(split_words(contrast.right.lower()), split_words(contrast.wrong.lower()), strict=True)
            ((right, wrong),) = [pair for pair in pairs if pair[0] != pair[1]]
            assert genders[right] == genders[wrong]


def test_the_set_is_balanced_and_always_the_same():
    pairs = contrastive_pairs(per_group=2)
    assert contrastive_pairs(per_group=2) == pairs
    assert contrastive_pairs(per_group=2, seed=5) != pairs
    counts = Counter((pair.phenomenon, pair.group) for pair in pairs)
    assert set(counts.values()) == {2}
    assert len(counts) == len(BINS) + 2 * (len(BINS) - 1) + 2
    assert len({pair.src for pair in pairs}) == len(pairs)
    with pytest.raises(ValueError, match="per_group must be at least 1"):
        contrastive_pairs(per_group=0)
