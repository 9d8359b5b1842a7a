"""Conversion between this package and torchtext 0.6.0: corpora, vocabularies and batches.

Pitfalls of torchtext that this module avoids:

- ``Vocab.stoi[...]`` inserts unknown words, so examples hold ids, not words.
- ``BucketIterator`` sorts by length only with ``sort_within_batch``.
- ``BucketIterator`` yields an empty batch before an example that is larger than a batch.
- The order of ``BucketIterator`` comes from Python's global generator.

Pitfalls that remain:

- ``len`` and ``list`` of a ``BucketIterator`` raise if batches are counted in tokens; iterate over it.
- ``TranslationDataset`` changes text as it reads: it cuts the longer of two files, strips lines, drops pairs
  with an empty side and does not read .gz. Use ``read_corpus`` for such files instead.

Shapes: B pairs, S and T as in ``data.batches``.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torchtext.data import BucketIterator, Dataset, Example, Field
from torchtext.data.utils import RandomShuffler
from torchtext.datasets import TranslationDataset
from torchtext.vocab import Vocab

from data.batches import Batch
from data.corpus import Corpus, Pairs
from data.symbols import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from data.vocabulary import VocabularyPair

Join = Callable[[Sequence[Any]], str]
"""Function that joins the tokens of one side of an example to text."""


class BridgedCorpus(NamedTuple):
    """A corpus as torchtext datasets."""

    src: Field
    """Field of the sources; it appends EOS, and its ``vocab`` maps ids to labels."""
    trg: Field
    """Field of the targets; it puts them between BOS and EOS."""
    splits: dict[str, Dataset]
    """Datasets by split; their examples have ``src`` and ``trg`` (ids) and ``row``, the pair's index."""


def to_torchtext(corpus: Corpus, vocabularies: VocabularyPair) -> BridgedCorpus:
    """Convert a corpus to torchtext datasets of ids.

    Args:
        corpus: the corpus; all its pairs are converted, in order.
        vocabularies: vocabularies of any kind, which encode the text.
    """
    src, trg = make_field(vocabularies.src), make_field(vocabularies.tgt, first=BOS)
    fields = [("src", src), ("trg", trg), ("row", Field(sequential=False, use_vocab=False))]
    splits = {}
    for name, pairs in corpus.splits.items():
        encoded = vocabularies.src.encode_all(pairs.src), vocabularies.tgt.encode_all(pairs.tgt)
        values = zip(*encoded, range(len(pairs.src)), strict=True)
        examples = [Example.fromlist(example_values, fields) for example_values in values]
        splits[name] = Dataset(examples, fields)
        splits[name].sort_key = TranslationDataset.sort_key
    return BridgedCorpus(src, trg, splits)


def make_field(vocabulary: Vocabulary, first: int | None = None) -> Field:
    """Make a field whose tokens are the ids of ``vocabulary``; it encodes the text that is passed to it.

    The ``vocab`` of the field maps ids to labels (``itos``) and back (``stoi``); encoding does not use it.

    Args:
        vocabulary: a vocabulary of any kind.
        first: id to put before each sequence, such as BOS; None puts none.
    """
    field = Field(
        use_vocab=False,
        tokenize=vocabulary.encode,
        init_token=first,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNK,
        batch_first=True,
    )
    field.vocab = _labels(vocabulary)
    return field


def bucket_iterator(
    dataset: Dataset, *, batch_tokens: int, seed: int, train: bool = True, device: str = "cpu"
) -> BucketIterator:
    """Make an iterator over batches of pairs of similar length, a function of the arguments alone.

    Args:
        dataset: a split of ``to_torchtext``, or any dataset with sequences ``src`` and ``trg``.
        batch_tokens: upper bound on the target positions of a batch, EOS and padding included.
        seed: seed of the order of all epochs.
        train: whether to shuffle.
        device: device of the tensors.

    Returns:
        An iterator that yields each pair once per epoch.

    Raises:
        ValueError: ``batch_tokens`` is smaller than the longest target with EOS.
    """
    longest = max(len(example.trg) for example in dataset.examples) + 1
    if batch_tokens < longest:
        raise ValueError(
            f"batch_tokens ({batch_tokens}) must hold the longest target ({longest} tokens with EOS)"
        )

    def target_positions(example: Example, count: int, positions: int) -> int:
        """Update the size of a batch that grows to ``count`` examples by ``example``."""
        longest_before = positions // (count - 1) if count > 1 else 0
        return count * max(longest_before, len(example.trg) + 1)

    iterator = BucketIterator(
        dataset,
        batch_tokens,
        sort_key=TranslationDataset.sort_key,
        device=device,
        batch_size_fn=target_positions,
        train=train,
        sort_within_batch=True,
    )
    iterator.random_shuffler = RandomShuffler(random.Random(seed).getstate())
    return iterator


def to_batch(batch: Any) -> Batch:
    """Convert a batch of a ``to_torchtext`` split to what ``make_batch`` builds of the same pairs.

    Args:
        batch: a torchtext batch with ``src`` (B, S), ``trg`` (B, T + 1) and ``row`` (B,).
    """
    src_mask, tgt_out = batch.src != PAD, batch.trg[:, 1:]  # no text is encoded as PAD
    tgt_mask = tgt_out != PAD
    return Batch(
        src=batch.src,
        src_mask=src_mask,
        tgt_in=batch.trg[:, :-1].masked_fill(~tgt_mask, PAD),  # removes the EOS of shorter targets
        tgt_out=tgt_out,
        tgt_mask=tgt_mask,
        rows=batch.row.cpu(),
        src_lengths=src_mask.sum(1).cpu(),
        src_tokens=int(src_mask.sum()) - len(batch.src),
        tgt_tokens=int(tgt_mask.sum()),
    )


def from_torchtext(
    splits: Mapping[str, Dataset],
    src_lang: str,
    tgt_lang: str,
    *,
    join: tuple[Join, Join] = (" ".join, " ".join),
    name: str = "torchtext",
) -> Corpus:
    """Convert torchtext datasets, such as ``TranslationDataset``s, to a corpus.

    Args:
        splits: datasets named "train", "valid", and one or more with names that begin with "test".
        src_lang: language of the first field; the name of the field is not used.
        tgt_lang: language of the second field.
        join: functions that join the tokens of a source and of a target to text. The default puts spaces
            between tokens, and BLEU is then computed on that text. If the fields tokenise by ``str.split``
            it equals the original text except for runs of white space.
        name: name of the corpus.

    Raises:
        ValueError: the first two fields of a dataset are not sequences, or ``join`` cannot join their tokens.
    """
    pairs = {split: _pairs(split, dataset, join) for split, dataset in splits.items()}
    return Corpus(name=name, src_lang=src_lang, tgt_lang=tgt_lang, splits=pairs)


def _pairs(split: str, dataset: Dataset, join: tuple[Join, Join]) -> Pairs:
    """Join the tokens of the first two fields of a dataset to text."""
    columns = list(dataset.fields)[:2]
    sides = [[getattr(example, column) for example in dataset.examples] for column in columns]
    if len(sides) < 2 or not all(isinstance(tokens, list) for side in sides for tokens in side):
        raise ValueError(
            f"{split}: the first two of its fields ({', '.join(dataset.fields)}) must be sequences"
        )
    try:
        src, tgt = (tuple(map(join_side, side)) for join_side, side in zip(join, sides, strict=True))
    except TypeError:
        raise ValueError(
            f"{split}: its tokens are not words; give join, such as a vocabulary's decode"
        ) from None
    return Pairs(src, tgt)


def _labels(vocabulary: Vocabulary) -> Vocab:
    """Make a torchtext ``Vocab`` that maps the ids of ``vocabulary`` to labels and back."""
    content = vocabulary.to_json()
    ids = range(len(SPECIALS), len(vocabulary))
    labels = list(content["counts"]) if "counts" in content else vocabulary.pieces(ids)
    vocab = Vocab(Counter(), specials=list(SPECIALS))
    vocab.itos = [*SPECIALS, *labels]
    vocab.stoi.update({label: index for index, label in enumerate(vocab.itos)})
    return vocab
