"""One optimizer step: what training does and the benchmark times, so that both are the same."""

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
    """Update the weights on the mean loss of a batch's target tokens; returns the loss and gradient norm."""
    with autocast(batch.src.device, precision):
        loss = criterion(batch.src, batch.src_mask, batch.tgt_in, batch.tgt_out, batch.tgt_mask)
    (loss.minimised / loss.tokens).backward()
    norm = nn.utils.clip_grad_norm_(criterion.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss, norm
