"""Splits of the built-in corpus: unambiguous, without overlap, and not solved by a word-for-word gloss."""

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
from data.grammar.phrases import cumulative_weights
from data.grammar.trees import Sentence
from data.vocabulary import split_words
from tests.kits.grammar import is_word, links_of


def few(table_of, count):
    """Cut a table of the sampler to its first entries, so that sentences recur often."""

    def first(key):
        entries, _ = table_of(key)
        return entries[:count], cumulative_weights(min(count, len(entries)))

    return first


@pytest.fixture
def few_words(monkeypatch):
    """Leave the sampler two or three words of each kind: different trees often give the same English."""
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
    assert len(germans) < 18_000  # thousands recurred
    assert [english for english, german in germans.items() if len(german) > 1] == []


def test_no_english_sentence_has_two_translations_over_seeds(splits):
    germans = {pair.src: pair.tgt for pairs in splits.values() for pair in pairs}
    rng = random.Random(9)
    for _ in range(25_000):
        pair = realise(sampling.Sampler(rng).sentence())
        assert germans.setdefault(pair.src, pair.tgt) == pair.tgt


@pytest.mark.usefixtures("few_words")
def test_no_sentence_occurs_twice_even_if_many_are_drawn_repeatedly():
    pairs = [
        pair
        for part in embedded_splits(train=1_500, valid=50, test=50, test_long=50).values()
        for pair in part
    ]
    assert len({pair.src for pair in pairs}) == len({pair.tgt for pair in pairs}) == len(pairs) == 1_650


def test_no_sentence_occurs_twice(splits):
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


def test_long_sentences_have_almost_no_unseen_words(splits):
    train_words = {word for pair in splits["train"] for word in split_words(pair.tgt)}
    words = [word for pair in splits["test_long"] for word in split_words(pair.tgt)]
    assert sum(word not in train_words for word in words) < 0.002 * len(words)
    assert len(train_words) < 1_800
    assert len({word for pair in splits["train"] for word in split_words(pair.src)}) < 900


def gloss(pairs: list[AlignedPair], lexicon: dict[str, str]) -> list[str]:
    """Replace each English word by its most frequent German one, in English order."""
    texts = (" ".join(lexicon.get(word, word) for word in split_words(pair.src)) for pair in pairs)
    return [text[:1].upper() + re.sub(r" ([.,?])", r"\1", text[1:]) for text in texts]


def test_a_word_for_word_gloss_is_poor(splits):
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in splits["train"]:
        tgt, linked = split_words(pair.tgt), defaultdict(list)
        for i, j in links_of(pair):
            linked[i].append(tgt[j])
        for i, word in enumerate(split_words(pair.src)):
            counts[word][" ".join(linked[i])] += 1
    lexicon = {word: count.most_common(1)[0][0] for word, count in counts.items()}
    for name in ("test", "test_long"):
        references = [pair.tgt for pair in splits[name]]
        score = sacrebleu.corpus_bleu(gloss(splits[name], lexicon), [references]).score
        assert 5 < score < 40, name  # above 5, so the gloss is not simply broken


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
