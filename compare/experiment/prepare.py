"""Prepare the data that all models of an experiment share: corpus, vocabularies, encoded splits, batches."""

import dataclasses
import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from compare.config.resolve import Run
from compare.config.sections import EMBEDDED_TRAIN_SIZE, DataConfig
from compare.experiment.start import initial_vocabularies
from compare.models.registry import Architecture, train_flops_per_token
from compare.scoring import SPACED_TOKENIZERS, outcome_tests
from data.batches import BatchStream
from data.corpus import Corpus, embedded_corpus, find_corpus, read_corpus
from data.encode import EncodedSplit, describe_unknown, encode_split, ensure_lengths
from data.forms import SAMPLE_LINES, describe_corpus
from data.vocabulary import SUBWORD_KINDS, VocabularyPair, build_pair

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """Data of one experiment; only the batches depend on the seed."""

    corpus: Corpus
    vocabularies: VocabularyPair
    train: EncodedSplit
    """Training set without subword sampling."""
    valid: EncodedSplit
    stream: BatchStream
    batch_hash: str
    warnings: tuple[str, ...] = ()

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """Sizes of source and target vocabulary."""
        return len(self.vocabularies.src), len(self.vocabularies.tgt)

    def training_flops(self, architecture: Architecture, passes: int = 1) -> float:
        """Count the FLOPs of training per token, at the mean lengths of the corpus."""
        return train_flops_per_token(
            architecture,
            src_len=float(self.train.src_lengths.mean()) + 1,
            tgt_len=float(self.train.tgt_lengths.mean()) + 1,
            tgt_vocabulary=len(self.vocabularies.tgt),
            passes=passes,
        )

    def for_seed(self, seed: int) -> "PreparedData":
        """Return the same data with the batches of another seed."""
        if seed == self.stream.seed:
            return self
        stream = self.stream.with_seed(seed)
        return replace(self, stream=stream, batch_hash=stream.stream_hash(1))


def load_corpus(config: DataConfig, *, tests: bool = True) -> Corpus:
    """Read the corpus of a ``[data]`` section, or generate the built-in one.

    Raises:
        ValueError: the text is malformed, or has fewer training pairs than ``train_size``.
    """
    if config.root:
        root = find_corpus(Path(config.root).expanduser(), config.src)
        corpus = read_corpus(root, config.src, config.tgt, tests=tests)
        if config.train_size:
            corpus = corpus.with_train_cut(config.train_size)
    else:
        size = config.train_size or EMBEDDED_TRAIN_SIZE
        corpus = embedded_corpus(seed=config.seed, train=size, grammar=config.grammar, tests=tests)
    return corpus.with_tests_cut(config.max_test) if config.max_test else corpus


def prepare_data(
    run: Run, folder: Path, *, tests: bool = True, vocabularies: VocabularyPair | None = None
) -> PreparedData:
    """Read, check and encode the corpus, and hash the batches of the first epoch.

    Args:
        run: any run of the experiment.
        folder: cache of encoded splits.
        tests: whether to read the test sets; a search of settings must not see them.
        vocabularies: by default those of ``init_from``, or else built from the training split.

    Raises:
        ValueError: the corpus or the vocabulary cannot be used, or ``scoring.outcome`` names no test set.
    """
    corpus = load_corpus(run.data, tests=tests)
    if tests:
        outcome_tests(run.scoring.outcome, corpus.tests)
    pairs = corpus.splits["train"]
    sizes = ", ".join(f"{name} {len(split.src):,}" for name, split in corpus.splits.items())
    logger.info(f"corpus {corpus.name} {corpus.src_lang} -> {corpus.tgt_lang}: {sizes}")
    needs_spaces = run.scoring.tokenize in SPACED_TOKENIZERS
    warnings = describe_corpus(corpus, run.vocabulary.kind, unspaced=needs_spaces)
    source, limit = run.train.init_from, run.data.max_tokens
    if vocabularies is None:
        if source:
            vocabularies = initial_vocabularies(source)
        else:
            vocabularies = build_pair(pairs, **dataclasses.asdict(run.vocabulary))
    encoded = encode_split(pairs, vocabularies, folder=folder, max_tokens=limit)
    valid = encode_split(corpus.splits["valid"], vocabularies, folder=folder, max_tokens=None)
    if encoded.dropped:
        warnings.append(
            f"{encoded.dropped} of {len(pairs.src)} training pairs are dropped: they have over {limit} tokens"
        )
    for split, texts in corpus.splits.items():
        for language, lines, vocabulary in zip(
            (corpus.src_lang, corpus.tgt_lang), texts, vocabularies, strict=False
        ):
            if split != "train":
                ids = vocabulary.encode_all(lines)
                ensure_lengths(ids, f"{corpus.name}, {split}.{language}")
            elif source:  # earlier vocabularies may lack the words of this text
                lines = lines[:SAMPLE_LINES]
                ids = vocabulary.encode_all(lines)
            else:
                continue
            warnings += describe_unknown(lines, ids, vocabulary, f"{split}, {language}")
    for warning in warnings:
        logger.warning(warning)
    size, smallest = run.vocabulary.size, min(map(len, vocabularies))
    if run.vocabulary.kind in SUBWORD_KINDS and smallest < size and not source:  # already logged
        warnings.append(f"the text yields only {smallest:,} of the {size:,} entries of vocabulary.size")
    encoded, valid = sides(encoded, run), sides(valid, run)
    stream = training_batches(encoded, vocabularies, run)
    logger.info(
        f"vocabulary {len(vocabularies.src)}/{len(vocabularies.tgt)}, {len(stream.plan(1))} batches per epoch"
    )
    return PreparedData(
        corpus=corpus,
        vocabularies=vocabularies,
        train=encoded,
        valid=valid,
        stream=stream,
        batch_hash=stream.stream_hash(1),
        warnings=tuple(warnings),
    )


def sides(split: EncodedSplit, run: Run) -> EncodedSplit:
    """Return the sides of an encoded split that the models read; language models read only targets."""
    return split if run.translates else split.without_sources()


def training_batches(split: EncodedSplit, vocabularies: VocabularyPair, run: Run) -> BatchStream:
    """Return the stream of training batches.

    Raises:
        ValueError: a batch cannot hold the longest target, or subwords cannot be sampled.
    """
    seed, limit = run.train.seed, run.data.max_tokens
    stream = partial(BatchStream, batch_tokens=run.train.batch_tokens, seed=seed)
    if strength := run.regularization.subword_sampling:
        from data.sampling import SampledSplit

        return stream(
            SampledSplit(
                split=split, vocabularies=vocabularies, strength=strength, seed=seed, max_tokens=limit
            )
        )
    return stream(split)
