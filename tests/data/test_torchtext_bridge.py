"""Conversion from and to torchtext: the same ids, batches and loss as without it."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchtext.data import Dataset, Example, Field, RawField
from torchtext.datasets import TranslationDataset

from compare.training.loss import LossSums, TranslationLoss
from data.batches import Batch, make_batch
from data.corpus import Corpus, Pairs, read_corpus
from data.encode import encode_split
from data.symbols import BOS, EOS, PAD
from data.torchtext_bridge import bucket_iterator, from_torchtext, make_field, to_batch, to_torchtext
from data.vocabulary import KINDS, VocabularyPair, build_pair
from seq2seq import Seq2Seq, Seq2SeqConfig
from tests.conftest import write_corpus

BUDGET = 60
SIZES = {"words": 30, "characters": 40, "unigram": 279, "bpe": 290}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    root = write_corpus(tmp_path_factory.mktemp("bridge") / "corpus", {"train": 120, "valid": 9, "test": 7})
    return read_corpus(root, "en", "de")


@pytest.fixture(params=KINDS)
def vocabularies(request: pytest.FixtureRequest, corpus: Corpus) -> VocabularyPair:
    return build_pair(corpus.splits["train"], kind=request.param, size=SIZES[request.param], joint=False)


def assert_same(expected: Batch, actual: Batch) -> None:
    """Compare all fields of two batches."""
    for name, value in vars(expected).items():
        other = getattr(actual, name)
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, name


def test_every_batch_equals_that_of_make_batch(corpus: Corpus, vocabularies: VocabularyPair, tmp_path: Path):
    bridged = to_torchtext(corpus, vocabularies)
    for split in ("train", "test"):
        encoded = encode_split(corpus.splits[split], vocabularies, folder=tmp_path, max_tokens=None)
        rows: Counter[int] = Counter()
        for batch in bucket_iterator(
            bridged.splits[split], batch_tokens=BUDGET, seed=1, train=split == "train"
        ):
            converted = to_batch(batch)
            assert_same(make_batch(encoded, batch.row.numpy()), converted)
            assert converted.tgt_out.numel() <= BUDGET
            rows.update(batch.row.tolist())
        assert rows == Counter(range(len(encoded)))


def model_for(vocabularies: VocabularyPair) -> Seq2Seq:
    torch.manual_seed(3)
    config = Seq2SeqConfig(embedding_size=8, hidden_size=8, dropout=0.0)
    return Seq2Seq(config, len(vocabularies.src), len(vocabularies.tgt)).double().eval()


def loss_of(criterion: TranslationLoss, batch: Batch) -> LossSums:
    loss: LossSums = criterion(batch.src, batch.src_mask, batch.tgt_in, batch.tgt_out, batch.tgt_mask)
    return loss


def test_the_loss_of_an_epoch_is_that_without_torchtext(corpus: Corpus, vocabularies, tmp_path: Path):
    """With ``TranslationLoss`` on converted batches, and with a loop as users of torchtext write it."""
    model = model_for(vocabularies)
    criterion = TranslationLoss(model, 0.0)
    bridged = to_torchtext(corpus, vocabularies)
    encoded = encode_split(corpus.splits["train"], vocabularies, folder=tmp_path, max_tokens=None)
    iterator = bucket_iterator(bridged.splits["train"], batch_tokens=BUDGET, seed=1)
    with torch.no_grad():
        expected = loss_of(criterion, make_batch(encoded, encoded.rows))
        batches = [batch for batch in iterator]
        losses = [loss_of(criterion, to_batch(batch)) for batch in batches]
        by_hand = torch.zeros((), dtype=torch.float64)
        for batch in batches:
            logits = model(batch.src, batch.src != PAD, batch.trg[:, :-1])
            by_hand += nn.functional.cross_entropy(
                logits.flatten(0, 1), batch.trg[:, 1:].flatten(), ignore_index=PAD, reduction="sum"
            )
    assert sum(loss.tokens for loss in losses) == expected.tokens
    torch.testing.assert_close(sum(loss.nll for loss in losses), expected.nll, rtol=1e-12, atol=0)
    torch.testing.assert_close(by_hand, expected.nll, rtol=1e-12, atol=0)


def test_the_order_depends_on_the_seed_alone(corpus: Corpus):
    pair = build_pair(corpus.splits["train"], kind="words", size=30, joint=True)
    train = to_torchtext(corpus, pair).splits["train"]

    def epochs(seed: int) -> list[list[list[int]]]:
        iterator = bucket_iterator(train, batch_tokens=BUDGET, seed=seed)
        return [[batch.row.tolist() for batch in iterator] for _ in range(2)]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)
    first, second = epochs(1)
    assert first != second


def test_batches_hold_pairs_of_similar_length(corpus: Corpus):
    """Without ``sort_within_batch`` torchtext does not sort at all, and half of a batch would be padding."""
    pair = build_pair(corpus.splits["train"], kind="words", size=30, joint=True)
    train = to_torchtext(corpus, pair).splits["train"]
    targets = [to_batch(batch).tgt_mask for batch in bucket_iterator(train, batch_tokens=BUDGET, seed=1)]
    assert sum(int((~mask).sum()) for mask in targets) < 0.1 * sum(mask.numel() for mask in targets)


def test_a_budget_below_the_longest_target_is_refused(corpus: Corpus):
    pair = build_pair(corpus.splits["train"], kind="words", size=30, joint=True)
    test = to_torchtext(corpus, pair).splits["test"]
    longest = max(len(example.trg) for example in test.examples) + 1
    assert all(len(batch) for batch in bucket_iterator(test, batch_tokens=longest, seed=1))
    with pytest.raises(ValueError, match=rf"batch_tokens \({longest - 1}\) must hold the longest target"):
        bucket_iterator(test, batch_tokens=longest - 1, seed=1)


def test_a_field_encodes_text_and_labels_ids(corpus: Corpus, vocabularies: VocabularyPair):
    field = make_field(vocabularies.tgt, first=BOS)
    text = corpus.splits["test"].tgt[0]
    ids = vocabularies.tgt.encode(text)
    assert field.process([field.preprocess(text)]).tolist() == [[BOS, *ids, EOS]]
    assert len(field.vocab) == len(field.vocab.itos) == len(vocabularies.tgt)
    assert [field.vocab.stoi[name] for name in field.vocab.itos] == list(range(len(vocabularies.tgt)))
    assert field.vocab.stoi["<pad>"] == PAD


WORDS = st.lists(st.text("abcäß한", min_size=1, max_size=3), min_size=1, max_size=5).map(" ".join)
LINES = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6)


@settings(deadline=None, max_examples=50)
@given(pairs=LINES)
def test_a_corpus_survives_conversion_to_torchtext_and_back(pairs: list[tuple[str, str]]):
    src, tgt = zip(*pairs, strict=True)
    splits = {name: Pairs(src, tgt) for name in ("train", "valid", "test")}
    sent = Corpus(name="sent", src_lang="xx", tgt_lang="yy", splits=splits)
    pair = build_pair(splits["train"], kind="words", size=100, joint=False)
    bridged = to_torchtext(sent, pair)
    back = from_torchtext(bridged.splits, "xx", "yy", join=(pair.src.decode, pair.tgt.decode))
    assert back.splits == splits
    assert back.content_hash == sent.content_hash


def test_a_translation_dataset_equals_the_corpus_of_its_files(corpus: Corpus, tmp_path: Path):
    root = write_corpus(tmp_path / "corpus", {"train": 120, "valid": 9, "test": 7})
    source, target = Field(tokenize=str.split), Field(tokenize=str.split)
    names = ("train", "valid", "test")
    datasets = TranslationDataset.splits((".en", ".de"), (source, target), str(root), validation="valid")
    taken = from_torchtext(dict(zip(names, datasets, strict=True)), "en", "de")
    assert taken.content_hash == corpus.content_hash


def test_ids_are_not_taken_for_words(corpus: Corpus):
    bridged = to_torchtext(corpus, build_pair(corpus.splits["train"], kind="words", size=30, joint=True))
    with pytest.raises(ValueError, match="train: its tokens are not words; give join"):
        from_torchtext(bridged.splits, "en", "de")


def test_a_dataset_without_two_texts_is_refused():
    fields = [("text", Field()), ("label", RawField())]
    dataset = Dataset([Example.fromlist(["a b", "good"], fields)], fields)
    with pytest.raises(
        ValueError, match="train: the first two of its fields \\(text, label\\) must be sequences"
    ):
        from_torchtext({"train": dataset}, "en", "de")
