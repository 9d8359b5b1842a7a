"""The grammar of the built-in corpus: correct German, exact links, unambiguous ends of clauses."""

import dataclasses
import random

import pytest

from data.grammar import realise, sampling
from data.grammar.english import PARTS
from data.grammar.phrases import clock, date, number_words, ordinal_words
from data.grammar.trees import Clause, Relative
from data.vocabulary import split_words
from tests.kits.german import accepts
from tests.kits.grammar import is_word, links_of
from tests.kits.trees import PAIRS


@pytest.mark.parametrize(("tree", "english", "german"), PAIRS, ids=[english for _, english, _ in PAIRS])
def test_pairs_written_by_hand(tree, english, german):
    pair = realise(tree)
    assert (pair.src, pair.tgt) == (english, german)


def test_there_are_forty_hand_written_pairs_and_the_recogniser_takes_them():
    assert len(PAIRS) == 40
    assert [german for _, _, german in PAIRS if not accepts(german)] == []


@pytest.mark.slow
def test_every_german_sentence_is_recognised(splits):
    refused = [pair.tgt for pairs in splits.values() for pair in pairs if not accepts(pair.tgt)]
    assert refused == []


@pytest.mark.parametrize(
    "wrong",
    [
        "Die alte Frau, die sieht den Hund, schläft.",  # verb not last in a relative clause
        "Die alte Frau, den den Hund sieht, schläft.",  # relative pronoun of the wrong gender
        "Die alte Frau die den Hund sieht, schläft.",  # no comma
        "Der alter Hund schläft.",  # strong ending after the article
        "Ein alte Hund schläft.",  # weak ending after "ein"
        "Frischer Brot ist gut.",  # gender
        "Er hilft den Mann.",  # case of the object
        "Er sieht dem Mann.",
        "Das Mädchen sieht den Junge.",  # n-declension
        "Er spielt mit die Katze.",  # case after a preposition
        "Er spielt mit den Kinder.",  # dative plural
        "Er stellt die Tasse auf dem Tisch.",  # direction
        "Er schläft unter den Tisch.",  # place
        "Am Montag er schläft.",  # verb second
        "Er ruft den Arzt.",  # separable prefix lost
        "Er anruft den Arzt.",  # prefix not split off
        "Er hat aufgestanden.",  # auxiliary
        "Er hat gesehen den Arzt.",  # participle not last
        "Er muss den Arzt zu sehen.",
        "Er versucht, die Tür zu zumachen.",
        "Der Arzt schlafen.",  # agreement
        "Du sieht den Arzt.",
        "Ich schlafe, weil er liest das Buch.",  # verb last after "weil"
        "Weil er schläft, ich lese das Buch.",  # verb first after a subordinate clause
        "Sie gibt das Buch dem Mann.",  # dative before accusative
        "Sie schläft um halb dreizehn.",
        "Der Sohn der Bäcker dieses schläft.",
        "Der Mann, dessen alte Hund krank war, weint.",  # strong ending after "dessen"
    ],
)
def test_the_recogniser_refuses_what_is_wrong(wrong):
    assert not accepts(wrong)


def test_numbers_dates_and_times():
    assert number_words(23) == ("twenty three", "dreiundzwanzig")
    assert number_words(31) == ("thirty one", "einunddreißig")
    assert number_words(40) == ("forty", "vierzig")
    assert ordinal_words(7) == ("seventh", "siebten")
    assert ordinal_words(20) == ("twentieth", "zwanzigsten")
    assert ordinal_words(31) == ("thirty first", "einunddreißigsten")
    german_times = [" ".join(german for _, german in clock(hour, minutes).chunks) for hour, minutes in HOURS]
    assert german_times == HOURS_IN_GERMAN
    assert " ".join(german for _, german in date(1, 3).chunks).split() == ["am", "ersten", "März"]


HOURS = [(1, 0), (12, 30), (4, 45), (12, 55), (5, 15), (9, 40)]
HOURS_IN_GERMAN = [
    "um ein Uhr",
    "um halb eins",
    "um Viertel vor fünf",
    "um fünf vor eins",
    "um Viertel nach fünf",
    "um zwanzig vor zehn",
]


def test_links_of_a_hand_aligned_pair():
    tree = next(
        tree
        for tree, english, _ in PAIRS
        if english == "The guests" or english.startswith("The girl picks up")
    )
    # The girl picks up her tired boy . / Das Mädchen holt ihren müden Jungen ab .
    assert realise(tree).links == "0-0 1-1 2-2 2-6 3-2 3-6 4-3 5-4 6-5 7-7"
    halves = next(tree for tree, english, _ in PAIRS if "half past three" in english)
    # This train arrives at half past three . / Dieser Zug kommt um halb vier an .
    assert realise(halves).links == "0-0 1-1 2-2 2-6 3-3 4-4 5-4 6-5 7-7"


def test_links_are_in_range_and_reach_every_word(splits):
    for pair in (pair for pairs in splits.values() for pair in pairs):
        src, tgt = split_words(pair.src), split_words(pair.tgt)
        links = links_of(pair)
        assert links == sorted(set(links))
        assert all(i < len(src) and j < len(tgt) for i, j in links)
        unlinked = [w for i, w in enumerate(src) if is_word(w) and i not in {i for i, _ in links}]
        assert set(unlinked) <= {"of"}, pair  # only the "of" of a date has no German
        assert {j for j, word in enumerate(tgt) if is_word(word)} <= {j for _, j in links}, pair


def test_links_cross(splits):
    for pairs in splits.values():
        crossing = total = 0
        for links in map(links_of, pairs):
            crossing += sum(any((i - k) * (j - m) < 0 for k, m in links) for i, j in links)
            total += len(links)
        assert crossing >= 0.3 * total


def nodes(tree):
    """Yield all nodes of a tree."""
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        for part in tree:
            yield from nodes(part)
    elif dataclasses.is_dataclass(tree):
        yield tree
        for field in dataclasses.fields(tree):
            yield from nodes(getattr(tree, field.name))


def test_a_relative_clause_ends_its_clause():
    """Otherwise a later phrase could belong to either clause in English, but not in German."""
    rng = random.Random(10)
    clauses_with_relative = 0
    for _ in range(4_000):
        for clause in nodes(sampling.Sampler(rng).sentence()):
            if isinstance(clause, Clause):
                parts = [getattr(clause, name) for name in PARTS if name != clause.front]
                has_relative = [any(isinstance(n, Relative) for n in nodes(part)) for part in parts if part]
                assert not any(has_relative[:-1])
                clauses_with_relative += any(has_relative)
    assert clauses_with_relative > 100
