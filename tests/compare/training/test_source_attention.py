"""Link mass: words that are translated word by word are linked, and attention is measured on these links."""

from itertools import product

import numpy as np
import pytest
import torch

from compare.training import source_attention as module
from compare.training.source_attention import AttentionProbe, Translations, short_pairs
from data.encode import EncodedSplit, Sequences

SIZE = 12
"""Words of each language; word i is translated by word SIZE - 1 - i, and the order is reversed."""


def corpus(count: int, seed: int) -> EncodedSplit:
    random = np.random.default_rng(seed)
    src = [(4 + random.permutation(SIZE)[: random.integers(5, 9)]).tolist() for _ in range(count)]
    tgt = [[4 + SIZE - 1 - (word - 4) for word in reversed(words)] for words in src]
    return EncodedSplit(src=Sequences.of(src), tgt=Sequences.of(tgt), rows=np.arange(count), dropped=0)


class Attending:
    """Attends to one position in the way that is asked for; two heads, of which the first is uniform."""

    def __init__(self, how: str) -> None:
        self.how = how

    def attention(self, src: torch.Tensor, src_mask: torch.Tensor, tgt_in: torch.Tensor):
        sizes = src_mask.sum(1)
        heads = torch.zeros(len(src), 2, tgt_in.size(1), src.size(1))
        for b, size in enumerate(sizes.tolist()):
            heads[b, 0, :, :size] = 1 / size
            for t in range(size - 1):
                heads[b, 1, t, size - 2 - t if self.how == "right" else t] = 1
        cross = {} if self.how == "none" else {"cross": heads}
        return {**cross, "decoder": torch.ones(1)}


def model_1(src: list[list[int]], tgt: list[list[int]], iterations: int) -> dict[tuple[int, int], float]:
    """Compute t(f | e) by the sums of Brown et al. 1993, section 4.1; NULL is -1, counts get 0.001 more."""
    pairs = [([-1, *e], f) for e, f in zip(src, tgt, strict=True)]
    t = {(e, f): 1.0 for source, target in pairs for e, f in product(source, target)}
    for _ in range(iterations):
        count = dict.fromkeys(t, 1e-3)
        for source, target in pairs:
            for f in target:
                total = sum(t[e, f] for e in source)
                for e in source:
                    count[e, f] += t[e, f] / total
        of = {e: sum(value for (one, _), value in count.items() if one == e) for e, _ in t}
        t = {(e, f): value / of[e] for (e, f), value in count.items()}
    return t


def test_translations_are_those_of_model_1():
    src, tgt = [[1, 2, 3], [1, 3], [2, 2]], [[5, 6], [5], [6, 7, 7]]
    table = Translations.learn(Sequences.of(src), Sequences.of(tgt))
    expected = model_1(src, tgt, iterations=5)
    translations = {
        (int(key) // table.size - 1, int(key) % table.size): value
        for key, value in zip(table.keys, table.probabilities, strict=True)
    }
    assert translations == pytest.approx(expected)


def test_links_find_the_words_and_skip_what_was_never_seen():
    train, valid = corpus(200, 1), corpus(3, 2)
    table = Translations.learn(train.src, train.tgt)
    links = table.links(valid.src, valid.tgt)
    expected = np.concatenate([np.arange(length)[::-1] for length in valid.src_lengths])
    np.testing.assert_array_equal(links, expected)
    assert table.links(Sequences.of([[4, 99]]), Sequences.of([[98, 97]])).tolist() == [-1, -1]


def test_mass_and_direction_of_the_best_head():
    probe = AttentionProbe(corpus(200, 1), corpus(120, 2))
    cpu = torch.device("cpu")
    right, wrong = probe(Attending("right"), cpu), probe(Attending("forwards"), cpu)
    assert right is not None
    assert wrong is not None
    assert right.link_mass == pytest.approx(1)
    assert right.direction < -0.7  # the last word comes first
    assert right.finds_source
    assert wrong.link_mass < right.chance_mass + 0.1
    assert not wrong.finds_source
    assert right.chance_mass == pytest.approx(
        np.mean([1 / (n + 1) for n in probe._valid.src_lengths for _ in range(n)]), rel=0.1
    )
    assert probe(Attending("none"), cpu) is None


def test_long_sentences_cost_no_memory(monkeypatch: pytest.MonkeyPatch):
    """Pairs of words by sentence: 90, 6, 30, 12 and 90; the last sentence is beyond the first four."""
    lengths = [9, 2, 5, 3, 9]
    texts = Sequences.of([[4] * length for length in lengths])
    split = EncodedSplit(src=texts, tgt=texts, rows=np.arange(5), dropped=0)
    monkeypatch.setattr(module, "PAIRS", 4)
    for most, rows in ((200, [0, 1, 2, 3]), (48, [1, 2, 3]), (47, [1, 3]), (1, [1])):
        monkeypatch.setattr(module, "CELLS", most)
        assert short_pairs(split).tolist() == rows
    monkeypatch.setattr(module, "LENGTHS", (3, 5))
    assert AttentionProbe(split, split)._rows.tolist() == [2, 3]
