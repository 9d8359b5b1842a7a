"""Attention as word alignment: links from weights, entropy, and their scores on a text and an experiment.

Shapes: M methods, C heads and means of heads, T target and S source words of a pair; leading dimensions of
weights and links are heads.

References:
- Ghader and Monz 2017, What does Attention in Neural Machine Translation Pay Attention to? IJCNLP.
- Luong et al. 2015, Effective Approaches to Attention-based Neural Machine Translation. EMNLP.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.word_links import AlignmentCounts, BoolArray, CountArray, Gold, WordPair, corpus_gold
from compare.attention.weights import BYTE_PIECE, AttentionHead, merge_pieces, with_means
from compare.decoding.translator import Translator
from compare.protocol import attends_to_source
from compare.results.formatting import Row
from compare.results.run_folder import load_model
from data.batches import decode_batches, make_source_batch, padded
from data.encode import Sequences, ensure_lengths
from data.files import write_atomically
from data.vocabulary import BOS, ESCAPED, SPACE, Vocabulary, text_words

logger = logging.getLogger(__name__)

# Weights between words under forced decoding of given translations.
#
# T' target and S' source pieces of a pair; P pieces and W words of either side.


FloatArray = NDArray[np.float64]
LayerWeights = Mapping[str, FloatArray]
"""Weights (H, T', S') of a sentence pair by layer."""


def shared_bytes(vocabulary: Vocabulary, text: str, ids: Sequence[int], words: Sequence[str]) -> CountArray:
    """Count the bytes (P, W) that the pieces of a text share with its words.

    A piece may contain one word, part of one, several ("?!"), or none, such as a space. Bytes of UTF-8 are
    counted because subword vocabularies write rare characters byte by byte. Only white space may separate
    words.
    """
    numbers = iter([number for number, word in enumerate(words) for _ in word])
    written = [(character, -1 if character.isspace() else next(numbers)) for character in text]
    if vocabulary.kind in ("words", "given"):
        written = [(character, number) for character, number in written if number >= 0]
        lengths = [len(token.encode()) for token in text_words(text, vocabulary.kind)]
    elif vocabulary.kind == "characters":
        lengths = [len(character.encode()) for character in text]
    else:  # SentencePiece writes a space as SPACE, and adds one before the text
        spelled = [
            (ESCAPED.get(character, character).replace(" ", SPACE), number) for character, number in written
        ]
        written = [(SPACE, -1), *spelled]
        labels = vocabulary.pieces(ids)
        lengths = [1 if BYTE_PIECE.fullmatch(label) else len(label.encode()) for label in labels]
    piece_of_byte = np.repeat(np.arange(len(lengths)), lengths)
    word_of_byte = np.array([number for part, number in written for _ in part.encode()], dtype=np.int64)
    word_of_byte = word_of_byte[: len(piece_of_byte)]  # an empty text has no pieces
    shared: CountArray = np.zeros((len(lengths), len(words)), dtype=np.int64)
    inside = word_of_byte >= 0
    np.add.at(shared, (piece_of_byte[inside], word_of_byte[inside]), 1)
    return shared


class WordAttention(NamedTuple):
    """Attention weights of one sentence pair, without the end-of-sentence token of either side."""

    number: int
    """Index of the pair in the argument of ``attend_words``."""
    heads: tuple[AttentionHead, ...]
    """All heads; then the mean of each layer with several heads, and the mean of all layers."""
    weights: FloatArray
    """(C, T, S); a row lacks the weight of the source's end-of-sentence token."""


@torch.inference_mode()
def attend_words(translator: Translator, pairs: Sequence[WordPair]) -> Iterator[WordAttention]:
    """Compute attention between words under forced decoding of the targets, longest pairs first.

    Yields nothing for a model without attention to the source.
    """
    vocabularies = translator.vocabularies
    sources = vocabularies.src.encode_all(pair.src for pair in pairs)
    targets = vocabularies.tgt.encode_all(pair.tgt for pair in pairs)
    ensure_lengths(sources, "the source text")
    ensure_lengths(targets, "the target text")
    lengths = np.array([max(len(src), len(tgt)) for src, tgt in zip(sources, targets, strict=True)])
    for indices in decode_batches(lengths, translator.decode.batch_tokens):
        batch = [(sources[index], targets[index]) for index in indices]
        batch_weights = _force_decode(translator, batch)
        for index, (src, tgt), layers in zip(indices, batch, batch_weights, strict=True):
            if not layers:
                return
            pair = pairs[index]
            heads, weights = with_means(layers)
            shared_tgt = shared_bytes(vocabularies.tgt, pair.tgt, tgt, pair.tgt_words)
            shared_src = shared_bytes(vocabularies.src, pair.src, src, pair.src_words)
            yield WordAttention(int(index), heads, merge_pieces(weights, shared_tgt, shared_src))


def _force_decode(
    translator: Translator, batch: Sequence[tuple[list[int], list[int]]]
) -> Iterator[LayerWeights]:
    """Yield the cross-attention weights of each pair by layer, if there are any."""
    src, src_mask = (part.to(translator.device) for part in make_source_batch([src for src, _ in batch]))
    tgt_in, _ = padded(Sequences.of([tgt for _, tgt in batch]), first=BOS)
    translator.model.eval()
    attention = translator.model.attention(src, src_mask, torch.from_numpy(tgt_in).to(translator.device))
    cross = {
        name: weights.double().cpu().numpy()  # (B, H, T' + 1, S' + 1); the last entries are end of sentence
        for name, weights in attention.items()
        if attends_to_source(name)
    }
    for row, (src_ids, tgt_ids) in enumerate(batch):
        yield {name: weights[row, :, : len(tgt_ids), : len(src_ids)] for name, weights in cross.items()}


# Methods that derive links from weights, the diagonal baseline, and entropy.


ARG_MAX = "arg max"
"""The most common method in the literature."""
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
"""Minimum weights of a link; the best is chosen on the validation split."""


def arg_max(weights: FloatArray) -> BoolArray:
    """Link each target word to the source word with the largest weight (Luong et al. 2015, section 5.4).

    Of equal weights the first counts. A target word that only attends to the end of sentence has no link.
    """
    links: BoolArray = np.zeros(weights.shape, dtype=np.bool_)
    best = weights.argmax(axis=-1)[..., None]
    np.put_along_axis(links, best, np.take_along_axis(weights, best, axis=-1) > 0, axis=-1)
    return links


def mutual_arg_max(weights: FloatArray) -> BoolArray:
    """Intersect the ``arg_max`` links of both directions (Och and Ney 2003, section 4)."""
    return arg_max(weights) & arg_max(weights.swapaxes(-1, -2)).swapaxes(-1, -2)


def above_threshold(weights: FloatArray, threshold: float) -> BoolArray:
    """Link all pairs of words with a weight of at least ``threshold``."""
    return weights >= threshold


def diagonal(tgt_words: int, src_words: int) -> BoolArray:
    """Link each target word to the source word at the same relative position; (T, S)."""
    links: BoolArray = np.zeros((tgt_words, src_words), dtype=np.bool_)
    positions = np.arange(tgt_words)
    links[positions, (2 * positions + 1) * src_words // (2 * tgt_words)] = True
    return links


class Method(NamedTuple):
    """A method that derives links from weights (..., T, S)."""

    name: str
    value: float | None
    """Threshold; methods with the same name differ only in this."""
    links: Callable[[FloatArray], BoolArray]


METHODS = (
    Method(ARG_MAX, None, arg_max),
    Method("intersection", None, mutual_arg_max),
    *(Method("threshold", value, partial(above_threshold, threshold=value)) for value in THRESHOLDS),
)


def method_number(name: str) -> int:
    """Return the index in ``METHODS`` of "arg max", "intersection" or a threshold such as "0.2".

    Raises ValueError if there is no such method.
    """
    names = [method.name if method.value is None else str(method.value) for method in METHODS]
    if name not in names:
        raise ValueError(f"unknown method {name!r}: choose from {', '.join(names)}")
    return names.index(name)


def entropy(weights: FloatArray) -> FloatArray:
    """Compute the entropy of attention over the source words, in nats (Ghader and Monz 2017).

    Rows of weights (..., T, S) are normalised; the entropy of a row of zeros is NaN.
    """
    p = _ratio(weights, weights.sum(axis=-1, keepdims=True))
    nats: FloatArray = 0 - (p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)  # unary minus would give -0.0
    return nats


def sum_entropy(weights: FloatArray) -> FloatArray:
    """Sum the entropies over the target words of one sentence pair.

    Returns:
        (4, C): the sum in nats; the words in it, which give some source word a weight; the sum as shares of
        the maximum log S; the words in that, none for a source of one word. Sums of pairs may be added.
    """
    nats = entropy(weights)
    total, words = np.nansum(nats, axis=-1), np.isfinite(nats).sum(axis=-1)
    several = weights.shape[-1] > 1
    shares = total / math.log(weights.shape[-1]) if several else 0 * total
    return np.stack([total, words, shares, several * words])


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(
        numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0
    )
    return ratio


# One model on a text with gold links.


class LinkChoice(NamedTuple):
    """A method, by its index in ``METHODS``, and a head, by its index in the measurement."""

    method: int
    head: int


@dataclass(frozen=True, kw_only=True)
class AlignmentMeasurement:
    """Link counts of every head by every method, and the entropy of every head."""

    heads: tuple[AttentionHead, ...]
    counts: CountArray
    """Link counts, (M, C, 4)."""
    entropy: FloatArray
    """Sums of ``sum_entropy``, (4, C)."""

    def plus(self, other: "AlignmentMeasurement") -> "AlignmentMeasurement":
        """Return the sums over the sentence pairs of both."""
        return replace(self, counts=self.counts + other.counts, entropy=self.entropy + other.entropy)

    def link_counts(self, choice: LinkChoice) -> AlignmentCounts:
        """Return the counts of one method and head."""
        return AlignmentCounts(*self.counts[choice].tolist())

    def best(self, name: str, heads: Iterable[int]) -> LinkChoice:
        """Choose the method called ``name`` and the head with the lowest AER; the first of equal ones."""
        methods = [index for index, method in enumerate(METHODS) if method.name == name]
        choices = [LinkChoice(method, head) for head in heads for method in methods]
        errors = [self.link_counts(choice).aer for choice in choices]
        return choices[int(np.argmin([np.inf if error is None else error for error in errors]))]

    def rows(self, method: str) -> list[Row]:
        """Return one table row per head and mean of heads."""
        number = method_number(method)
        return [self.row(LinkChoice(number, head)) for head in range(len(self.heads))]

    def row(self, choice: LinkChoice) -> Row:
        """Return the scores and entropy of one choice as a table row."""
        method, (nats, share) = METHODS[choice.method], self.mean_entropy()
        return {
            "attention": str(self.heads[choice.head]),
            "method": method.name,
            "threshold": method.value,
            **self.link_counts(choice).scores(),
            "entropy_nats": _known(nats[choice.head]),
            "entropy_share": _known(share[choice.head]),
        }

    def mean_entropy(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean entropy over target words in nats and as a share of log S, each (C,)."""
        nats, words, share, shared_words = self.entropy
        return _ratio(nats, words), _ratio(share, shared_words)

    def spread(self) -> Row:
        """Return the mean entropy of all heads, and of the narrowest and the widest head."""
        single = [index for index, head in enumerate(self.heads) if head.number is not None]
        nats, share = (values[single] for values in self.mean_entropy())
        return {
            "heads": len(single),
            "entropy_nats": _known(nats.mean()),
            "entropy_nats_narrowest": _known(nats.min()),
            "entropy_nats_widest": _known(nats.max()),
            "entropy_share": _known(share.mean()),
        }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def measure_alignment(translator: Translator, gold: Gold) -> AlignmentMeasurement | None:
    """Align the sentence pairs of ``gold`` with every head; None without attention to the source.

    Warnings about the texts are logged.
    """
    translator.log_warnings([pair.src for pair in gold.pairs], [pair.tgt for pair in gold.pairs])
    return _measure(translator, gold)


def _measure(translator: Translator, gold: Gold) -> AlignmentMeasurement | None:
    pairs = (_measure_pair(pair, gold) for pair in attend_words(translator, gold.pairs))
    first = next(pairs, None)
    return None if first is None else reduce(AlignmentMeasurement.plus, pairs, first)


def _measure_pair(pair: WordAttention, gold: Gold) -> AlignmentMeasurement:
    return AlignmentMeasurement(
        heads=pair.heads,
        counts=gold.count(pair.number, np.stack([method.links(pair.weights) for method in METHODS])),
        entropy=sum_entropy(pair.weights),
    )


def write_link_files(translator: Translator, gold: Gold, folder: Path, method: str) -> list[Path]:
    """Write one file of links in Pharaoh format per head of a model; returns their paths.

    The name of a file is that of the head, such as ``layer-1-head-2.links``.
    """
    derive = METHODS[method_number(method)].links
    lines: dict[str, list[str]] = {}
    for pair in attend_words(translator, gold.pairs):
        for head, links in zip(pair.heads, derive(pair.weights), strict=True):
            head_lines = lines.setdefault(re.sub(r"\W+", "-", str(head)), [""] * len(gold.pairs))
            pairs_of_words = zip(*links.T.nonzero(), strict=True)
            head_lines[pair.number] = " ".join(f"{i}-{j}" for i, j in pairs_of_words)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for head_name, content in lines.items():
        paths.append(folder / f"{head_name}.links")
        write_atomically(paths[-1], "".join(f"{line}\n" for line in content))
    return paths


# Alignment of every finished run of an experiment, scored if the corpus has gold links.
#
# Head and threshold are chosen on the validation split; the scores reported are those of a test set.


BASELINE = "diagonal"
"""Label and method of the baseline, diagonal links."""


class Alignments(NamedTuple):
    """Result of ``align_experiment``; without gold links it has entropies only."""

    rows: list[Row]
    """The baseline; then the best head, and the best mean of several, by run and method."""
    heads: list[Row]
    """All heads and means of every run, with arg max links, on validation."""
    chosen: dict[tuple[str, int], AttentionHead]
    """The head or mean with the lowest validation AER of arg max links, by label and seed."""
    spread: list[Row]
    """Entropy of each run's heads on the test set, in nats and as a share of log S."""


def align_experiment(finished: FinishedExperiment) -> Alignments:
    """Align the first test set with every run that has attention to the source; other runs have no rows.

    Raises:
        ValueError: a run cannot be loaded.
    """
    test = finished.corpus.tests[0]
    kind = next((run.run.vocabulary.kind for run in finished.runs), "")
    test_gold, valid_gold = (corpus_gold(finished.corpus, split, kind) for split in (test, "valid"))
    has_gold = bool(finished.corpus.splits[test].links)
    alignments = Alignments([baseline_row(test_gold)] if has_gold else [], [], {}, [])
    for run in finished.runs:
        logger.info(f"aligning {test}: {run.folder.name}")
        translator = load_model(run.folder)
        tested = _measure(translator, test_gold)
        if tested is None:
            continue
        alignments.spread.append(run.names | tested.spread())
        if not has_gold:
            continue
        valid = cast("AlignmentMeasurement", _measure(translator, valid_gold))
        heads = range(len(valid.heads))
        alignments.rows.extend(run.names | row for row in best_choice_rows(valid, tested))
        alignments.heads.extend(run.names | valid.row(valid.best(ARG_MAX, [head])) for head in heads)
        alignments.chosen[run.result.label, run.result.seed] = valid.heads[valid.best(ARG_MAX, heads).head]
    return alignments


def best_choice_rows(valid: AlignmentMeasurement, tested: AlignmentMeasurement) -> Iterator[Row]:
    """Yield the test scores of the best single head, then of the best mean of heads, for each method.

    Args:
        valid: the model on the validation split, where head and threshold are chosen.
        tested: the same model on the test set.
    """
    for kind in ("head", "mean"):
        heads = [i for i, head in enumerate(valid.heads) if (head.number is None) == (kind == "mean")]
        for method in (ARG_MAX, "intersection", "threshold") if heads else ():
            best = valid.best(method, heads)
            yield {"read": kind, **tested.row(best), "aer_valid": valid.link_counts(best).aer}


def baseline_row(gold: Gold) -> Row:
    """Score diagonal links, which depend only on the lengths of the two sentences."""
    counts = [gold.count(number, diagonal(*pair.size[::-1])) for number, pair in enumerate(gold.pairs)]
    total = AlignmentCounts(*np.sum(counts, axis=0).tolist())
    names = {"label": BASELINE, "seed": None, "read": None, "attention": None, "method": BASELINE}
    return {**names, **total.scores()}
