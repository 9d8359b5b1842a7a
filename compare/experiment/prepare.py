"""What all rows of an experiment share: corpus, vocabularies, encoded splits, the stream of batches."""

import logging
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from compare.config.sections import DataConfig, Experiment, VocabularyConfig
from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus
from data.encode import encode_split
from data.encoded_split import EncodedSplit
from data.loader import BatchStream
from data.vocabulary import VocabularyPair, build_pair

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """The same for every row of an experiment and seed; other seeds differ in their batches alone."""

    corpus: Corpus
    vocabularies: VocabularyPair
    train: EncodedSplit
    valid: EncodedSplit
    stream: BatchStream
    batch_hash: str

    def for_seed(self, seed: int) -> "PreparedData":
        """The same with the batches of another seed."""
        if seed == self.stream.seed:
            return self
        stream = BatchStream(self.train, batch_tokens=self.stream.batch_tokens, seed=seed)
        return replace(self, stream=stream, batch_hash=stream.stream_hash(1))


def load_corpus(config: DataConfig) -> Corpus:
    """The corpus that a ``[data]`` section names, its test sets cut short if told to."""
    if config.root:
        corpus = read_corpus(Path(config.root).expanduser(), config.src, config.tgt)
    else:
        corpus = embedded_corpus(seed=config.seed, train=config.train_size)
    return corpus.with_tests_cut(config.max_test) if config.max_test else corpus


def prepare_data(experiment: Experiment, folder: Path) -> PreparedData:
    """Read, check and encode; what was encoded before for the same text is taken from ``folder``."""
    laps = [perf_counter()]
    corpus = load_corpus(experiment.data)
    pairs = corpus.splits["train"]
    logger.info(f"corpus {corpus.name} {corpus.src_lang} -> {corpus.tgt_lang}: " + _sizes(corpus))
    for test in corpus.tests:
        if overlap := corpus.overlap(test):
            logger.warning(
                f"{overlap} of {len(corpus.splits[test].src)} sources of {test} also stand in train"
            )
    laps.append(perf_counter())
    vocabularies = build_vocabularies(pairs, experiment.vocabulary)
    laps.append(perf_counter())
    limit = experiment.data.max_tokens
    encoded = encode_split(pairs, vocabularies, folder=folder, max_tokens=limit)
    valid = encode_split(corpus.splits["valid"], vocabularies, folder=folder, max_tokens=None)
    laps.append(perf_counter())
    if encoded.dropped:
        logger.warning(
            f"{encoded.dropped} of {len(pairs.src)} training pairs are left out: over {limit} tokens"
        )
    train = experiment.train
    stream = BatchStream(encoded, batch_tokens=train.batch_tokens, seed=train.seed)
    logger.info(
        f"vocabulary {len(vocabularies.src)}/{len(vocabularies.tgt)}, {len(stream.plan(1))} batches an epoch"
    )
    batch_hash = stream.stream_hash(1)
    laps.append(perf_counter())
    steps = zip(("reading", "vocabulary", "encoding", "batches"), pairwise(laps), strict=True)
    logger.info("prepared: " + ", ".join(f"{step} {end - start:.1f} s" for step, (start, end) in steps))
    return PreparedData(
        corpus=corpus,
        vocabularies=vocabularies,
        train=encoded,
        valid=valid,
        stream=stream,
        batch_hash=batch_hash,
    )


def build_vocabularies(train: Pairs, config: VocabularyConfig) -> VocabularyPair:
    """Vocabularies of the training split, which is all they may be built from."""
    return build_pair(
        train, kind=config.kind, size=config.size, joint=config.joint, min_count=config.min_count
    )


def _sizes(corpus: Corpus) -> str:
    return ", ".join(f"{name} {len(pairs.src):,}" for name, pairs in corpus.splits.items())
