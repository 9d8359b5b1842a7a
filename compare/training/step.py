"""The optimizer step, shared by the trainer and the benchmark of training speed."""

import math

import torch
from torch import Tensor, nn

from compare.system.precision import autocast
from compare.training.loss import LossSums, TranslationLoss
from data.batch import Batch


def add_gradients(criterion: TranslationLoss, batch: Batch, *, tokens: int, precision: str) -> LossSums:
    """Add the gradients of a batch to those of the parameters.

    Args:
        criterion: the loss, which holds the model.
        batch: the batch, on the model's device.
        tokens: target tokens of the update, by which the loss is divided: more than those of ``batch`` if it
            is only a part of the global batch.
        precision: "fp32" or "bf16"; the latter runs the forward pass under autocast.

    Returns:
        The loss, summed over the tokens of ``batch``.
    """
    with autocast(batch.src.device, precision):
        loss = compute_loss(criterion, batch)
    (loss.minimised / tokens).backward()  # type: ignore[no-untyped-call]
    return loss


def update_weights(criterion: TranslationLoss, optimizer: torch.optim.Optimizer, clip_norm: float) -> Tensor:
    """Clip the gradients, take one optimizer step, delete the gradients, and end the update of the loss.

    Args:
        criterion: the loss, which holds the model.
        optimizer: its optimizer.
        clip_norm: maximum norm of the gradient; 0: it is not clipped.

    Returns:
        The norm of the gradient before clipping.
    """
    norm = nn.utils.clip_grad_norm_(criterion.parameters(), clip_norm or math.inf)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    criterion.end_update()
    return norm


def train_step(
    criterion: TranslationLoss,
    optimizer: torch.optim.Optimizer,
    *parts: Batch,
    precision: str,
    clip_norm: float,
) -> tuple[LossSums, Tensor]:
    """Update the weights once on the mean loss per target token of a batch.

    Args:
        criterion: the loss, which holds the model.
        optimizer: its optimizer.
        parts: the batch, on the model's device, whole or in parts whose gradients are added.
        precision: as for ``add_gradients``.
        clip_norm: maximum norm of the gradient.

    Returns:
        The loss and the norm of the gradient before clipping.
    """
    tokens = sum(part.tgt_tokens for part in parts)
    first, *rest = (add_gradients(criterion, part, tokens=tokens, precision=precision) for part in parts)
    total = LossSums(*(sum(values, start) for start, *values in zip(first, *rest, strict=True)))
    return total, update_weights(criterion, optimizer, clip_norm)


def compute_loss(criterion: TranslationLoss, batch: Batch) -> LossSums:
    """Compute the loss of a batch that is on the model's device, without waiting for that device."""
    loss: LossSums = criterion(
        batch.src,
        batch.src_mask,
        batch.tgt_in,
        batch.tgt_out,
        batch.tgt_mask,
        tgt_tokens=batch.tgt_tokens,
        src_lengths=batch.src_lengths,
    )
    return loss
