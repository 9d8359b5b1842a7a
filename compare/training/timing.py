"""Workload of timing training: real updates on given batches."""

from collections.abc import Iterable, Sequence

import torch

from compare.system.timing import Workload
from compare.training.loss import TranslationLoss
from compare.training.step import train_step
from data.batch import Batch


def training_work(
    criterion: TranslationLoss,
    optimizer: torch.optim.Optimizer,
    updates: Sequence[Sequence[Batch]],
    *,
    precision: str,
    clip_norm: float,
) -> Workload:
    """Make the work of some updates, whose batches are moved to the model's device before.

    Args:
        criterion: the loss, which holds the model.
        optimizer: its optimizer.
        updates: the batch of each update, in the parts whose gradients are added.
        precision: fp32 or bf16.
        clip_norm: maximum norm of the gradient.
    """
    device = next(criterion.parameters()).device
    placed = [[part.to(device) for part in parts] for parts in updates]

    def update() -> None:
        criterion.train()
        for parts in placed:
            train_step(criterion, optimizer, *parts, precision=precision, clip_norm=clip_norm)

    return update


def count_tokens(batches: Iterable[Batch]) -> int:
    """Count the tokens of training: source without end of sentence, target with it, no padding."""
    return sum(batch.src_tokens + batch.tgt_tokens for batch in batches)
