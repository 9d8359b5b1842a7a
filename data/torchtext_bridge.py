"""A bridge to torchtext 0.6.0: our corpora as ``Field`` and ``BucketIterator``, its datasets as ours.

Traps of torchtext that this side-steps: ``Vocab.stoi[...]`` inserts unknown words, so examples hold ids, not
words; ``BucketIterator`` sorts by length only with ``sort_within_batch``; it yields an empty batch before an
example that is larger than a batch; its order comes from Python's global generator. (One is left: ``len`` and
``list`` of a ``BucketIterator`` raise where batches are counted in tokens; iterate over it.) What
``TranslationDataset`` does to text as it reads (it cuts the longer of two files short, strips lines, drops
pairs with an empty side, reads no .gz) cannot be seen in it any more: ``read_corpus`` reads such files right.

Shapes: B pairs, S and T as in ``data.batch``.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torchtext.data import BucketIterator, Dataset, Example, Field
from torchtext.data.utils import RandomShuffler
from torchtext.datasets import TranslationDataset
from torchtext.vocab import Vocab

from data.batch import Batch
from data.corpus import Corpus, Pairs
from data.symbols import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from data.vocabulary import VocabularyPair

Join = Callable[[Sequence[Any]], str]
"""Makes text of the tokens of an example."""


class BridgedCorpus(NamedTuple):
    """A corpus as torchtext has it; its examples have the attributes ``src``, ``trg`` (ids) and ``row``."""

    src: Field
    """Ends sources in EOS; ``src.vocab`` names the ids."""
    trg: Field
    """Puts targets between BOS and EOS."""
    splits: dict[str, Dataset]


def to_torchtext(corpus: Corpus, vocabularies: VocabularyPair) -> BridgedCorpus:
    """Hand a corpus over, encoded by ``vocabularies`` of any kind; every pair is there, in order."""
    src, trg = make_field(vocabularies.src), make_field(vocabularies.tgt, first=BOS)
    fields = [("src", src), ("trg", trg), ("row", Field(sequential=False, use_vocab=False))]
    splits = {}
    for name, pairs in corpus.splits.items():
        encoded = vocabularies.src.encode_all(pairs.src), vocabularies.tgt.encode_all(pairs.tgt)
        rows = zip(*encoded, range(len(pairs.src)), strict=True)
        examples = [Example.fromlist(row, fields) for row in rows]
        splits[name] = Dataset(examples, fields)
        splits[name].sort_key = TranslationDataset.sort_key
    return BridgedCorpus(src, trg, splits)


def make_field(vocabulary: Vocabulary, first: int | None = None) -> Field:
    """A field whose tokens are the ids of ``vocabulary``, so that text passed to it is encoded by it.

    Its ``vocab`` serves to name ids (``itos``), to find them (``stoi``) and to count them; numbers do not
    pass through it.
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
    field.vocab = _names(vocabulary)
    return field


def bucket_iterator(
    dataset: Dataset, *, batch_tokens: int, seed: int, train: bool = True, device: str = "cpu"
) -> BucketIterator:
    """Batches of pairs of like length, a function of (dataset, budget, seed); each pair is in one of them.

    Args:
        dataset: a split that was handed over, or any dataset with sequences ``src`` and ``trg``.
        batch_tokens: upper bound on a batch's places for targets, EOS and padding included.
        seed: what the order of all epochs is drawn from.
        train: whether to shuffle.
        device: where the tensors go.
    """
    longest = max(len(example.trg) for example in dataset.examples) + 1
    if batch_tokens < longest:
        raise ValueError(
            f"batch_tokens ({batch_tokens}) must hold the longest target ({longest} tokens with EOS)"
        )

    def places(example: Example, count: int, so_far: int) -> int:
        longest_so_far = so_far // (count - 1) if count > 1 else 0
        return count * max(longest_so_far, len(example.trg) + 1)

    iterator = BucketIterator(
        dataset,
        batch_tokens,
        sort_key=TranslationDataset.sort_key,
        device=device,
        batch_size_fn=places,
        train=train,
        sort_within_batch=True,
    )
    iterator.random_shuffler = RandomShuffler(random.Random(seed).getstate())
    return iterator


def to_batch(batch: Any) -> Batch:
    """A batch of a handed-over split as ours, with the tensors that ``make_batch`` makes of the same rows."""
    src_mask, tgt_out = batch.src != PAD, batch.trg[:, 1:]  # no text is encoded as PAD
    tgt_mask = tgt_out != PAD
    return Batch(
        src=batch.src,
        src_mask=src_mask,
        tgt_in=batch.trg[:, :-1].masked_fill(~tgt_mask, PAD),  # the EOS of shorter rows goes
        tgt_out=tgt_out,
        tgt_mask=tgt_mask,
        rows=batch.row,
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
    """Take datasets in, such as ``TranslationDataset``s, as a corpus with the splits of these names.

    Args:
        splits: "train", "valid" and one or more whose names begin with "test".
        src_lang: language of the first field, whatever its name.
        tgt_lang: language of the second.
        join: makes text of a source's tokens, and of a target's. The default gives tokens between spaces,
            which is what BLEU is then computed on; where the fields tokenised by ``str.split`` that is the
            text itself, but for runs of white space.
        name: what to call the corpus.
    """
    pairs = {split: _pairs(split, dataset, join) for split, dataset in splits.items()}
    return Corpus(name=name, src_lang=src_lang, tgt_lang=tgt_lang, splits=pairs)


def _pairs(split: str, dataset: Dataset, join: tuple[Join, Join]) -> Pairs:
    """The text of the first two fields of a dataset."""
    columns = list(dataset.fields)[:2]
    sides = [[getattr(example, column) for example in dataset.examples] for column in columns]
    if len(sides) < 2 or not all(isinstance(tokens, list) for side in sides for tokens in side):
        raise ValueError(f"{split}: its fields {', '.join(dataset.fields)} must begin with two of sequences")
    try:
        src, tgt = (tuple(map(make, side)) for make, side in zip(join, sides, strict=True))
    except TypeError:
        raise ValueError(
            f"{split}: its tokens are not words; give join, such as a vocabulary's decode"
        ) from None
    return Pairs(src, tgt)


def _names(vocabulary: Vocabulary) -> Vocab:
    """Torchtext's table of an id's name, and of a name's id."""
    content = vocabulary.to_json()
    ids = range(len(SPECIALS), len(vocabulary))
    words = list(content["counts"]) if "counts" in content else vocabulary.pieces(ids)
    table = Vocab(Counter(), specials=list(SPECIALS))
    table.itos = [*SPECIALS, *words]
    table.stoi.update({word: index for index, word in enumerate(table.itos)})
    return table
