"""The data that all models of an experiment share, and the weights that a model starts from."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from torch import nn

from compare.config.run import Run
from compare.config.sections import EMBEDDED_TRAIN_SIZE, DataConfig, TrainConfig, VocabularyConfig
from compare.models.registry import build_meta_model, ensure_fits_memory
from compare.results.run_folder import RunFolder
from compare.results.store import REGISTRY, read_registry, read_result
from compare.training.serialization import WEIGHTS, load_weights, set_weights
from data.batches import BatchStream
from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus
from data.encode import EncodedSplit, encode_split
from data.files import hash_file
from data.sampling import SampledSplit
from data.text import unspaced
from data.vocabulary import VocabularyPair, build_pair, load_pair

# Training that starts from the weights of another run (fine-tuning), with its vocabularies.


logger = logging.getLogger(__name__)

KEY = "train.init_from"


def with_initial_weights(run: Run) -> Run:
    """Decide which run ``run`` starts from, and the hash of its weights; without ``init_from``, nothing.

    Args:
        run: a run with its own seed. If ``init_from`` is the folder of an experiment, the run of the same
            label and seed there is meant.

    Raises:
        ValueError: there is no such run, it is not finished or has no weights, its vocabulary has other
            settings, or its weights are not those of an ``init_hash`` that is given.
    """
    train = run.train
    if train.init_from is None:
        return run
    root = Path(train.init_from).expanduser().absolute()
    folder = root / run.name if (root / REGISTRY).is_file() else root
    if not (folder / "config.toml").is_file():
        raise ValueError(
            f"{KEY}: {folder} is no run: give the folder of a finished run, or of an experiment with a run "
            "of the same label and seed"
        )
    source = RunFolder.read(folder)
    if read_result(folder).status != "done" or not source.weights.is_file():
        raise ValueError(f"{KEY}: {folder} is not finished, or has no weights (published runs have none)")
    _ensure_same_vocabulary(run.vocabulary, source.run.vocabulary, folder)
    found = hash_file(source.weights)
    if train.init_hash not in (None, found):
        raise ValueError(
            f"{source.weights} are not the weights of train.init_hash (sha256 {found[:12]}, not "
            f"{str(train.init_hash)[:12]}): restore them"
        )
    return replace(run, train=replace(train, init_from=str(folder), init_hash=found))


def initial_vocabularies(train: TrainConfig) -> VocabularyPair | None:
    """Load the vocabularies of the run that training starts from; None if it starts from random weights.

    Args:
        train: settings of an experiment or of a run; the runs of an experiment share their vocabularies.

    Raises:
        ValueError: there is no such run.
    """
    if train.init_from is None:
        return None
    folder = Path(train.init_from).expanduser()
    runs = [folder / name for name in read_registry(folder).runs]
    folder = next((run for run in runs if (run / "config.toml").is_file()), folder)
    if not (folder / "config.toml").is_file():
        raise ValueError(f"{KEY}: {folder} is no run: give the folder of a finished run, or of an experiment")
    return load_pair(folder)


def ensure_initial_weights_fit(runs: Sequence[RunFolder], vocabulary_sizes: tuple[int, int]) -> None:
    """Raise ValueError if the weights that a run starts from have other names or shapes than its model."""
    for run in runs:
        if run.run.train.init_from is not None:
            path = Path(run.run.train.init_from) / WEIGHTS
            model = build_meta_model(run.run.model.architecture, *vocabulary_sizes)
            set_weights(model, load_weights(path), f"{KEY} of {run.run.label}: {path}")


def load_initial_weights(model: nn.Module, train: TrainConfig) -> None:
    """Give a model the weights that its training starts from, if there are any.

    Raises:
        ValueError: the weights are damaged, of another model, or not those of ``init_hash``.
    """
    if train.init_from is None:
        return
    path = Path(train.init_from) / WEIGHTS
    weights = load_weights(path)
    if (found := hash_file(path)) != train.init_hash:
        raise ValueError(
            f"{path} are not the weights that this run starts from (sha256 {found[:12]}, not "
            f"{str(train.init_hash)[:12]}): restore them"
        )
    set_weights(model, weights, str(path))
    logger.info(f"starts from {path} (sha256 {found[:12]})")


def _ensure_same_vocabulary(here: VocabularyConfig, there: VocabularyConfig, source: Path) -> None:
    """Raise ValueError if the ``[vocabulary]`` section is not that of the run whose vocabularies are used."""
    for name, value in vars(there).items():
        if getattr(here, name) != value:
            text = str(value).lower() if isinstance(value, bool) else value
            raise ValueError(
                f"{KEY}: {source} has vocabulary.{name} = {text}, here {getattr(here, name)}: its weights "
                f"need its vocabularies: --set vocabulary.{name}={text}"
            )


# The data that all models of an experiment share: corpus, vocabularies, encoded splits, batches.


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
    run: Run,
    folder: Path,
    *,
    tests: bool = True,
    vocabularies: VocabularyPair | None = None,
) -> PreparedData:
    """Read, check and encode the corpus, and hash the batches of the first epoch.

    Args:
        run: any run of the experiment; its sections ``data``, ``vocabulary``, ``train`` and
            ``regularization``, and its task, decide.
        folder: cache of encoded splits; a split encoded before with the same vocabulary is taken from it.
        tests: whether to read the test sets; what is chosen on validation must not see them.
        vocabularies: those of the run, if they have been built or loaded before; by default those of the run
            that training starts from, or else of the training split.

    Raises:
        ValueError: the corpus or the vocabulary cannot be used.
    """
    times = [perf_counter()]
    corpus = load_corpus(run.data, tests=tests)
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
    vocabularies = vocabularies or initial_vocabularies(run.train)
    vocabularies = vocabularies or build_vocabularies(pairs, run.vocabulary)
    times.append(perf_counter())
    limit = run.data.max_tokens
    encoded = encode_split(pairs, vocabularies, folder=folder, max_tokens=limit)
    valid = encode_split(corpus.splits["valid"], vocabularies, folder=folder, max_tokens=None)
    times.append(perf_counter())
    if encoded.dropped:
        logger.warning(
            f"{encoded.dropped} of {len(pairs.src)} training pairs are left out: over {limit} tokens"
        )
    encoded, valid = sides(encoded, run), sides(valid, run)
    stream = training_batches(encoded, vocabularies, run)
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


def sides(split: EncodedSplit, run: Run) -> EncodedSplit:
    """Return what the models read of an encoded split: of language models the targets alone."""
    return split if run.translates else split.without_sources()


def training_batches(split: EncodedSplit, vocabularies: VocabularyPair, run: Run) -> BatchStream:
    """Return the stream of the training batches.

    Args:
        split: the encoded training set.
        vocabularies: those that it was encoded with.
        run: any run of the experiment, for its sections ``data``, ``train`` and ``regularization``.

    Raises:
        ValueError: a batch cannot hold the longest target, or the text cannot be sampled.
    """
    train, strength = run.train, run.regularization.subword_sampling
    if not strength:
        return BatchStream(split, batch_tokens=train.batch_tokens, seed=train.seed)
    sampled = SampledSplit(
        split, vocabularies, strength=strength, seed=train.seed, max_tokens=run.data.max_tokens
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
