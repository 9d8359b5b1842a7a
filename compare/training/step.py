"""The optimizer step, shared by the trainer and the benchmark of training speed."""

import torch
from torch import Tensor, nn

from compare.system.precision import autocast
from compare.training.loss import LossSums, TranslationLoss
from data.batch import Batch


def train_step(
    criterion: TranslationLoss,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    precision: str,
    clip_norm: float,
) -> tuple[LossSums, Tensor]:
    """Update the weights once on the mean loss per target token of a batch.

    Args:
        criterion: the loss, which holds the model.
        optimizer: its optimizer.
        batch: the batch, on the model's device.
        precision: "fp32" or "bf16"; the latter runs the forward pass under autocast.
        clip_norm: maximum norm of the gradient.

    Returns:
        The loss and the norm of the gradient before clipping.
    """
    with autocast(batch.src.device, precision):
        loss = compute_loss(criterion, batch)
    (loss.minimised / loss.tokens).backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(criterion.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss, norm


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
