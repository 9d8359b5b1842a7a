"""The data that all models of an experiment share: corpus, vocabularies, encoded splits, batches."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from compare.config.run import Run, find_task
from compare.config.sections import EMBEDDED_TRAIN_SIZE, DataConfig, Experiment, VocabularyConfig
from compare.experiment.initial_weights import initial_vocabularies
from compare.experiment.task import TASKS
from compare.models.meta_model import ensure_fits_memory
from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus
from data.encode import encode_split
from data.encoded_split import EncodedSplit
from data.loader import BatchStream
from data.sampled_split import SampledSplit
from data.text.characters import unspaced
from data.vocabulary import VocabularyPair, build_pair

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """Data of one experiment and seed; with another seed, only the batches differ."""

    corpus: Corpus
    vocabularies: VocabularyPair
    train: EncodedSplit
    """The training set with one segmentation per text, whatever its batches have."""
    valid: EncodedSplit
    stream: BatchStream
    batch_hash: str

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """Number of entries of the source and of the target vocabulary."""
        return len(self.vocabularies.src), len(self.vocabularies.tgt)

    def keep_hash(self) -> None:
        """Keep the hash of the batches beside the encoded data, so that no later start computes it."""
        self.stream.kept_hash(1, known=self.batch_hash)

    def for_seed(self, seed: int) -> "PreparedData":
        """Return the same data with the batches of another seed."""
        if seed == self.stream.seed:
            return self
        stream = self.stream.with_seed(seed)
        return replace(self, stream=stream, batch_hash=stream.kept_hash(1))


def load_corpus(config: DataConfig, *, tests: bool = True) -> Corpus:
    """Read the corpus of a ``[data]`` section, or generate the built-in one.

    Args:
        config: the section.
        tests: whether to include the test sets.

    Raises:
        OSError: a file cannot be read.
        ValueError: malformed text, or fewer training pairs than ``train_size``.
    """
    if config.root:
        corpus = read_corpus(Path(config.root).expanduser(), config.src, config.tgt, tests=tests)
        if config.train_size:
            corpus = corpus.with_train_cut(config.train_size)
    else:
        corpus = embedded_corpus(seed=config.seed, train=config.train_size or EMBEDDED_TRAIN_SIZE)
        if not tests:
            splits = {name: pairs for name, pairs in corpus.splits.items() if name not in corpus.tests}
            corpus = replace(corpus, splits=splits)
    return corpus.with_tests_cut(config.max_test) if config.max_test else corpus


def prepare_data(
    settings: Experiment | Run,
    folder: Path,
    *,
    tests: bool = True,
    vocabularies: VocabularyPair | None = None,
) -> PreparedData:
    """Read, check and encode the corpus, and hash the batches of the first epoch.

    Args:
        settings: an experiment or a run: its sections ``data``, ``vocabulary``, ``train`` and
            ``regularization``, and its task.
        folder: cache of encoded splits; a split encoded before with the same vocabulary is taken from it.
        tests: whether to read the test sets; what is chosen on validation must not see them.
        vocabularies: those of the run, if they have been built or loaded before; by default those of the run
            that training starts from, or else of the training split.

    Raises:
        ValueError: the corpus or the vocabulary cannot be used.
    """
    times = [perf_counter()]
    corpus = load_corpus(settings.data, tests=tests)
    pairs = corpus.splits["train"]
    logger.info(f"corpus {corpus.name} {corpus.src_lang} -> {corpus.tgt_lang}: " + _sizes(corpus))
    for test in corpus.tests:
        if overlap := corpus.overlap(test):
            logger.warning(
                f"{overlap} of {len(corpus.splits[test].src)} sources of {test} also occur in train"
            )
    references = corpus.splits["valid"].tgt
    if sum(map(unspaced, references)) > len(references) / 2:
        logger.warning(
            f"most references in {corpus.tgt_lang} have no spaces between words: BLEU, by which weights and "
            "length penalties are chosen, takes each sentence for a word or two; compare by chrF, and score "
            "translations by attnbench score --tokenize zh or ja-mecab"
        )
    times.append(perf_counter())
    vocabularies = vocabularies or initial_vocabularies(settings.train)
    vocabularies = vocabularies or build_vocabularies(pairs, settings.vocabulary)
    times.append(perf_counter())
    limit = settings.data.max_tokens
    encoded = encode_split(pairs, vocabularies, folder=folder, max_tokens=limit)
    valid = encode_split(corpus.splits["valid"], vocabularies, folder=folder, max_tokens=None)
    times.append(perf_counter())
    if encoded.dropped:
        logger.warning(
            f"{encoded.dropped} of {len(pairs.src)} training pairs are left out: over {limit} tokens"
        )
    task = TASKS[find_task(settings)]
    encoded, valid = task.select_sides(encoded), task.select_sides(valid)
    stream = training_batches(encoded, vocabularies, settings)
    # Samples are not drawn for a message: where their hash is kept, the first epoch may not be needed.
    batches = "" if stream.is_sampled else f", {len(stream.plan(1))} batches per epoch"
    logger.info(f"vocabulary {len(vocabularies.src)}/{len(vocabularies.tgt)}{batches}")
    batch_hash = stream.kept_hash(1, keep=False)  # a folder may yet refuse these settings
    times.append(perf_counter())
    steps = zip(("reading", "vocabulary", "encoding", "batches"), pairwise(times), strict=True)
    logger.info("prepared: " + ", ".join(f"{step} {end - start:.1f} s" for step, (start, end) in steps))
    return PreparedData(
        corpus=corpus,
        vocabularies=vocabularies,
        train=encoded,
        valid=valid,
        stream=stream,
        batch_hash=batch_hash,
    )


def training_batches(
    split: EncodedSplit, vocabularies: VocabularyPair, settings: Experiment | Run
) -> BatchStream:
    """Return the stream of the training batches.

    Args:
        split: the encoded training set.
        vocabularies: those that it was encoded with.
        settings: an experiment or a run: its sections ``data``, ``train`` and ``regularization``.

    Raises:
        ValueError: a batch cannot hold the longest target, or the text cannot be sampled.
    """
    train, strength = settings.train, settings.regularization.subword_sampling
    if not strength:
        return BatchStream(split, batch_tokens=train.batch_tokens, seed=train.seed)
    sampled = SampledSplit(
        split, vocabularies, strength=strength, seed=train.seed, max_tokens=settings.data.max_tokens
    )
    return BatchStream(sampled, batch_tokens=train.batch_tokens, seed=train.seed)


def build_vocabularies(train: Pairs, config: VocabularyConfig) -> VocabularyPair:
    """Build the vocabularies from the training split."""
    return build_pair(
        train, kind=config.kind, size=config.size, joint=config.joint, min_count=config.min_count
    )


def _sizes(corpus: Corpus) -> str:
    return ", ".join(f"{name} {len(pairs.src):,}" for name, pairs in corpus.splits.items())


def ensure_models_fit(runs: Sequence[Run], vocabulary_sizes: tuple[int, int]) -> None:
    """Raise ValueError if this machine's memory cannot hold the training of one of the models."""
    for run in runs:
        context = f"models.{run.label}"
        ensure_fits_memory(
            run.model.architecture, *vocabulary_sizes, training=True, context=context, ema=run.train.ema > 0
        )
