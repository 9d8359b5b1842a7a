"""Program that trains one model of each family in 1, 2 and 4 processes and keeps the weights of each process.

python -m tests.kits.weights_together FOLDER
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import compare.training.loss
from compare.config.sections import RegularizationConfig, TrainConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.optim import OptimConfig
from compare.system.distributed import Processes, join_processes
from compare.training.checkpoints import Validation
from compare.training.loss import TranslationLoss
from compare.training.serialization import CHECKPOINTS, model_weights, save_weights
from compare.training.trainer import Trainer
from data.batches import BatchStream
from tests.kits.loader import random_split
from tests.kits.together import fork, statuses

FAMILIES: dict[str, Any] = {
    name: replace(PRESETS[name].architecture, embedding_size=8, hidden_size=8, dropout=0.0)
    for name in ("lstm", "bahdanau", "luong-general")
} | {
    "transformer": replace(
        PRESETS["transformer"].architecture,
        **{"d_model": 8, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_size": 16},
        dropout=0.0,
        attention_dropout=0.0,
    )
}
FAMILIES["bahdanau-simcut"] = FAMILIES["bahdanau"]
REGULARIZATION = {"bahdanau-simcut": RegularizationConfig(consistency="simcut")}
UPDATES = 20
JOBS = ((1, 1), (2, 1), (4, 1), (1, 3), (2, 2))
"""Numbers of processes, and of parts per share."""


def cut_every_third(ids: Tensor, allowed: Tensor, probability: float) -> Tensor:
    """Cut the tokens whose id is divisible by 3: the same ones, whichever process computes a sentence."""
    return torch.where((ids % 3 == 0) & allowed, ~ids, ids)


def train(folder: Path, family: str, accumulate: int, processes: Processes) -> None:
    """Train in float64, and keep the weights of every process."""
    lengths = np.random.default_rng(5).integers(1, 12, size=(90, 2)).tolist()
    stream = BatchStream(random_split(lengths), batch_tokens=40, seed=3)
    torch.manual_seed(1)
    model = build(FAMILIES[family], 99, 99).double()
    criterion = TranslationLoss(model, 0.1, REGULARIZATION.get(family, RegularizationConfig()))
    trainer = Trainer(
        criterion=criterion,
        train_batches=stream,
        validate=lambda: Validation(loss=3.0, bleu=1.0),
        train_config=TrainConfig(
            precision="fp32", max_updates=UPDATES, valid_every=UPDATES, log_every=5, accumulate=accumulate
        ),
        optim_config=OptimConfig(learning_rate=1e-3, warmup_updates=2),
        run_folder=folder,
        report=lambda line: None,
        processes=processes,
    )
    trainer.run()
    if processes.is_main:
        trainer.state.seconds = {}
        (folder / "state").write_text(repr(trainer.state))
    save_weights(folder / CHECKPOINTS / f"rank{processes.rank}", model_weights(trainer.model))


def main(root: Path) -> None:
    compare.training.loss.cut_tokens = cut_every_third  # type: ignore[assignment]
    for size, accumulate in JOBS:

        def work(size: int = size, accumulate: int = accumulate) -> int:
            with join_processes() as processes:
                assert processes.size == size
                for family in FAMILIES:
                    train(root / f"{family}-{size}-{accumulate}", family, accumulate, processes)
            return 0

        assert statuses(fork(size, work)) == [0] * size


if __name__ == "__main__":
    main(Path(sys.argv[1]))
