"""A trainer with given validation scores, a tiny model, and readers of a run folder."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from compare.config.parse import load_experiment
from compare.config.sections import RegularizationConfig, TrainConfig
from compare.experiment.prepare import load_corpus
from compare.models.registry import Architecture, build
from compare.optim_config import OptimConfig
from compare.system.processes import SINGLE, Processes
from compare.training.checkpoints import Validation
from compare.training.loss import TranslationLoss
from compare.training.trainer import Trainer
from data.batches import BatchStream
from data.encode import encode_split
from data.vocabulary import build_pair
from seq2seq.config import Seq2SeqConfig

SMALL = Seq2SeqConfig(embedding_size=8, hidden_size=8, dropout=0.3)


def metrics(row: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (row / "metrics.jsonl").read_text().splitlines()]


def same_weights(one: Path, other: Path) -> bool:
    left, right = load_file(one), load_file(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def make_stream(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> BatchStream:
    """Build the batches of the tiny corpus; body of a fixture."""
    pairs = load_corpus(load_experiment(tiny_toml).data).splits["train"]
    vocabularies = build_pair(pairs, kind="words")
    split = encode_split(pairs, vocabularies, folder=tmp_path_factory.mktemp("split"), max_tokens=None)
    return BatchStream(split, batch_tokens=64, seed=1)


def trainer(
    stream: BatchStream,
    folder: Path,
    scores: list[Validation],
    report: Callable[[dict[str, Any]], None] = lambda line: None,
    *,
    architecture: Architecture = SMALL,
    vocabulary: int = 18,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    learning_rate: float = 1e-2,
    regularization: RegularizationConfig | None = None,
    processes: Processes = SINGLE,
    **settings: Any,
) -> Trainer:
    """Build a trainer whose n-th validation gives ``scores[n]``, and after the last score that one again."""
    remaining: Iterator[Validation] = iter(scores)
    defaults = {"precision": "fp32", "max_updates": 10, "valid_every": 2, "log_every": 1}
    train = TrainConfig(**(defaults | settings))
    torch.manual_seed(train.seed)
    model = build(architecture, vocabulary, vocabulary)
    criterion = TranslationLoss(model, train.label_smoothing, regularization).to(device, dtype)
    return Trainer(
        criterion=criterion,
        train_batches=stream,
        validate=lambda: next(remaining, scores[-1]),
        train_config=train,
        optim_config=OptimConfig(learning_rate=learning_rate, warmup_updates=2),
        run_folder=folder,
        report=report,
        processes=processes,
    )


def bleus(*values: float) -> list[Validation]:
    return [Validation(loss=3.0, bleu=value) for value in values]


SIZE, TOKENS = 5, 11


class Hidden(NamedTuple):
    hidden: Tensor
    choices: None = None


class TinyModel(nn.Module):
    """A model whose target positions see their own token and the mean of the source."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(TOKENS, SIZE, dtype=torch.float64)
        self.output = nn.Linear(SIZE, TOKENS, dtype=torch.float64)

    def features(
        self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Hidden:
        memory = (self.embedding(src) * src_mask.unsqueeze(2)).sum(dim=1) / src_mask.sum(dim=1, keepdim=True)
        return Hidden(torch.tanh(self.embedding(tgt_in) + memory.unsqueeze(1)))
