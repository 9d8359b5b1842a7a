"""Make the inputs of the benchmark from Multi30k by the pipeline of our training and translation."""

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from race_ours import ROWS, resolved
from work import Pairs, Sources, Work

from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.experiment.prepare import prepare_data
from compare.integrations.ctranslate2_model import Numbers
from compare.models.registry import train_flops_per_token
from compare.results.run_folder import RunFolder, load_model
from data.batches import Batch, make_source_batch
from data.corpus import read_corpus
from data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary, load_pair
from transformer.config import TransformerConfig

CONFIG = Path(__file__).parents[2] / "configs" / "speed.toml"
WARM_UP_UPDATES = 3
SENTENCES = 64
"""Of a batch to translate."""


class Made(NamedTuple):
    """Inputs of the benchmark, and their description."""

    work: Work
    warm_up: int
    """Batches before the clock starts; in decoding they are among the timed ones."""
    mflop_per_token: dict[str, float]
    """Of training, by our closed formulas, for each model."""


def training_work(root: Path, phase: str, updates: int) -> Made:
    """Batches of ``configs/speed.toml`` to train on, or ``updates`` batches of test sentences."""
    experiment = load_experiment(CONFIG, [f"data.root={root}"])
    with TemporaryDirectory() as folder:
        prepared = prepare_data(resolve_models(experiment)[0], Path(folder))
        size = len(prepared.vocabularies.tgt)
        trains = phase == "train"
        batches = islice(prepared.stream.epoch(1), (WARM_UP_UPDATES + updates) * trains)
        pairs = [_pairs(batch) for batch in batches]
        lengths = [
            float(side.mean()) + 1 for side in (prepared.train.src_lengths, prepared.train.tgt_lengths)
        ]
    if trains and len(pairs) < WARM_UP_UPDATES + updates:
        raise ValueError(f"--updates {updates}: an epoch has {len(pairs)} batches, 3 of them to warm up")
    lines = prepared.corpus.splits[prepared.corpus.tests[0]].src
    sources = [] if trains else _sources(prepared.vocabularies.src, lines, updates)
    flops = {
        model: train_flops_per_token(
            resolved(model).architecture, src_len=lengths[0], tgt_len=lengths[1], tgt_vocabulary=size
        )
        for model in ROWS
    }
    return Made(
        Work(size, PAD, UNK, BOS, EOS, pairs, sources),
        WARM_UP_UPDATES if trains else 1,
        {model: count / 1e6 for model, count in flops.items()},
    )


def translation_work(root: Path, run: Path, updates: int) -> Made:
    """Test sentences for the model of a finished run, encoded with its vocabulary."""
    config = RunFolder.read(run).run.data
    corpus = read_corpus(root, config.src, config.tgt)
    vocabularies = load_pair(run)
    sources = _sources(vocabularies.src, corpus.splits[corpus.tests[0]].src, updates)
    return Made(Work(len(vocabularies.tgt), PAD, UNK, BOS, EOS, [], sources), len(sources), {})


def save_weights(run: Path, path: Path) -> None:
    """Write the weights of a finished run's Transformer, and what of its settings they do not tell."""
    model = load_model(run).model
    config = model.config
    if type(config) is not TransformerConfig:
        raise ValueError(f"{run}: only a Transformer can be exported")
    numbers = {
        "params": sum(weight.numel() for weight in model.parameters()),
        **Numbers.of(config)._asdict(),
    }
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    np.savez(path, allow_pickle=False, **arrays, **{f"numbers/{name}": n for name, n in numbers.items()})


def _pairs(batch: Batch) -> Pairs:
    tensors = (batch.src, batch.src_mask.sum(1), batch.tgt_in, batch.tgt_out, batch.tgt_mask.sum(1))
    return Pairs(*(tensor.numpy() for tensor in tensors))


def _sources(vocabulary: Vocabulary, lines: tuple[str, ...], batches: int) -> list[Sources]:
    """The first lines, those of like length in one batch.

    Raises:
        ValueError: there are fewer batches.
    """
    if batches > (most := -(-len(lines) // SENTENCES)):
        raise ValueError(f"the test set has {len(lines):,} sentences: set --updates to {most} at most")
    sentences = sorted(vocabulary.encode_all(lines[: SENTENCES * batches]), key=len, reverse=True)
    sources = []
    for start in range(0, len(sentences), SENTENCES):
        ids, mask = make_source_batch(sentences[start : start + SENTENCES])
        sources.append(Sources(ids.numpy(), np.asarray(mask.sum(1))))
    return sources
