"""The embedded corpus: right German, exact links, splits that keep apart, and work for attention to do."""

import dataclasses
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict

import pytest
import sacrebleu

from data.grammar import AlignedPair, embedded_splits, phrases, realise, sampling
from data.grammar import lexicon as lex
from data.grammar.english import PARTS
from data.grammar.numerals import clock, date, number_words, ordinal_words
from data.grammar.phrases import falling
from data.grammar.trees import Clause, Relative, Sentence
from data.words import split_words

from .german import accepts
from .trees import PAIRS

Splits = dict[str, list[AlignedPair]]


@pytest.fixture(scope="module")
def splits() -> Splits:
    return embedded_splits()


def links_of(pair: AlignedPair) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in (link.split("-") for link in pair.links.split())]


def is_word(token: str) -> bool:
    return token[0].isalnum()


@pytest.mark.parametrize(("tree", "english", "german"), PAIRS, ids=[english for _, english, _ in PAIRS])
def test_pairs_written_by_hand(tree, english, german):
    pair = realise(tree)
    assert (pair.src, pair.tgt) == (english, german)


def test_there_are_forty_hand_written_pairs_and_the_recogniser_takes_them():
    assert len(PAIRS) == 40
    assert [german for _, _, german in PAIRS if not accepts(german)] == []


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
    said = [" ".join(german for _, german in clock(hour, minutes).chunks) for hour, minutes in HOURS]
    assert said == HOURS_IN_GERMAN
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


def test_links_stand_in_range_and_reach_every_word(splits):
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


def few(table_of, count):
    """Cut a table of the sampler to its first entries, so that sentences come again and again."""

    def first(key):
        entries, _ = table_of(key)
        return entries[:count], falling(min(count, len(entries)))

    return first


@pytest.fixture
def few_words(monkeypatch):
    """Leave the sampler two or three words of each kind: different trees often say the same in English."""
    for name, count in (("nouns_of", 2), ("verbs_of", 2), ("adjectives_of", 3)):
        for module in (phrases, sampling):
            monkeypatch.setattr(module, name, few(getattr(phrases, name), count), raising=False)
    for name in ("SINGULAR_DETERMINERS", "PLURAL_DETERMINERS", "DEFINITE_DETERMINERS"):
        monkeypatch.setattr(phrases, name, ["the"])
    monkeypatch.setattr(phrases, "POSSESSIVES", ("her", "their"))
    monkeypatch.setattr(phrases, "TIMES", ("part",))
    monkeypatch.setattr(phrases, "BRIEF_TIMES", ("part",))
    monkeypatch.setattr(sampling, "MODALS", ("can", "want"))
    monkeypatch.setattr(phrases.PhraseSampler, "adjectives", lambda self, noun: ())
    monkeypatch.setattr(phrases.PhraseSampler, "number", lambda self, low, high: ("two", "zwei"))
    for name in ("PLACES", "DIRECTIONS", "TARGETS", "DAY_PARTS", "CONJUNCTIONS", "QUESTIONS", "MANNERS"):
        monkeypatch.setattr(lex, name, getattr(lex, name)[:1])


@pytest.mark.usefixtures("few_words")
def test_german_is_a_function_of_english():
    rng = random.Random(8)
    germans = defaultdict(set)
    for _ in range(22_000):
        sampler = sampling.Sampler(rng)
        pair = realise(Sentence(sampler.clause(sampler.tense(), fronting=True)))
        germans[pair.src].add(pair.tgt)
    assert len(germans) < 18_000  # thousands came again
    assert [english for english, german in germans.items() if len(german) > 1] == []


def nodes(tree):
    """Walk the nodes of a tree."""
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        for part in tree:
            yield from nodes(part)
    elif dataclasses.is_dataclass(tree):
        yield tree
        for field in dataclasses.fields(tree):
            yield from nodes(getattr(tree, field.name))


def test_a_relative_clause_ends_its_clause():
    """Else what follows in English could belong to either clause, and German would tell them apart."""
    rng = random.Random(10)
    seen = 0
    for _ in range(4_000):
        for clause in nodes(sampling.Sampler(rng).sentence()):
            if isinstance(clause, Clause):
                spoken = [getattr(clause, name) for name in PARTS if name != clause.front]
                heavy = [any(isinstance(node, Relative) for node in nodes(part)) for part in spoken if part]
                assert not any(heavy[:-1])
                seen += any(heavy)
    assert seen > 100


def test_no_english_has_two_germans_over_seeds(splits):
    germans = {pair.src: pair.tgt for pairs in splits.values() for pair in pairs}
    rng = random.Random(9)
    for _ in range(25_000):
        pair = realise(sampling.Sampler(rng).sentence())
        assert germans.setdefault(pair.src, pair.tgt) == pair.tgt


@pytest.mark.usefixtures("few_words")
def test_no_side_stands_twice_even_where_many_are_drawn_again():
    pairs = [
        pair
        for part in embedded_splits(train=1_500, valid=50, test=50, test_long=50).values()
        for pair in part
    ]
    assert len({pair.src for pair in pairs}) == len({pair.tgt for pair in pairs}) == len(pairs) == 1_650


def test_no_side_stands_twice(splits):
    pairs = [pair for part in splits.values() for pair in part]
    assert len({pair.src for pair in pairs}) == len({pair.tgt for pair in pairs}) == len(pairs) == 22_000


def test_lengths(splits):
    for name, pairs in splits.items():
        low, high = (26, 40) if name == "test_long" else (4, 25)
        for pair in pairs:
            for side in (pair.src, pair.tgt):
                assert low <= sum(map(is_word, split_words(side))) <= high


def test_text_is_detokenised(splits):
    for pair in splits["train"]:
        for side in (pair.src, pair.tgt):
            assert re.fullmatch(r"[A-ZÄÖÜ][\w'’]*(,? [\w'’]+)*[.?]", side), side


def test_long_sentences_have_no_words_of_their_own(splits):
    known = {word for pair in splits["train"] for word in split_words(pair.tgt)}
    words = [word for pair in splits["test_long"] for word in split_words(pair.tgt)]
    assert sum(word not in known for word in words) < 0.002 * len(words)
    assert len(known) < 1_800
    assert len({word for pair in splits["train"] for word in split_words(pair.src)}) < 900


def gloss(pairs: list[AlignedPair], lexicon: dict[str, str]) -> list[str]:
    """Say each English word by its usual German, in English order."""
    texts = (" ".join(lexicon.get(word, word) for word in split_words(pair.src)) for pair in pairs)
    return [text[:1].upper() + re.sub(r" ([.,?])", r"\1", text[1:]) for text in texts]


def test_a_word_for_word_gloss_is_poor(splits):
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in splits["train"]:
        tgt, said = split_words(pair.tgt), defaultdict(list)
        for i, j in links_of(pair):
            said[i].append(tgt[j])
        for i, word in enumerate(split_words(pair.src)):
            counts[word][" ".join(said[i])] += 1
    lexicon = {word: count.most_common(1)[0][0] for word, count in counts.items()}
    for name in ("test", "test_long"):
        references = [pair.tgt for pair in splits[name]]
        score = sacrebleu.corpus_bleu(gloss(splits[name], lexicon), [references]).score
        assert 5 < score < 40, name  # over 5: the gloss is a real one


def test_the_corpus_depends_on_its_arguments_alone():
    code = (
        "from data.grammar import embedded_splits as s; import hashlib;"
        "made = repr(s(seed=5, train=300, valid=20, test=20, test_long=20));"
        "print(hashlib.sha256(made.encode()).hexdigest())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(printed) == 1
    small = {"train": 50, "valid": 5, "test": 5, "test_long": 5}
    assert embedded_splits(seed=5, **small) == embedded_splits(seed=5, **small)
    assert embedded_splits(seed=5, **small) != embedded_splits(seed=6, **small)
