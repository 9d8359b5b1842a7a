"""Workload of timing training: real updates on given batches."""

from collections.abc import Sequence

import torch

from compare.system.timing import Workload
from compare.training.loss import TranslationLoss
from compare.training.step import train_step
from data.batch import Batch


def training_work(
    criterion: TranslationLoss,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    *,
    precision: str,
    clip_norm: float,
) -> Workload:
    """Make the work of one update on each of ``batches``, which are moved to the model's device before.

    Args:
        criterion: the loss, which holds the model.
        optimizer: its optimizer.
        batches: at least one batch.
        precision: fp32 or bf16.
        clip_norm: maximum norm of the gradient.
    """
    device = next(criterion.parameters()).device
    placed = [batch.to(device) for batch in batches]

    def update() -> None:
        criterion.train()
        for batch in placed:
            train_step(criterion, optimizer, batch, precision=precision, clip_norm=clip_norm)

    return update


def count_tokens(batches: Sequence[Batch]) -> int:
    """Count the tokens of training: source without end of sentence, target with it, no padding."""
    return sum(batch.src_tokens + batch.tgt_tokens for batch in batches)
