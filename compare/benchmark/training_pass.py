"""Forward and backward pass of training on random ids: the workload whose growth is measured."""

import torch

from compare.system.precision import autocast
from compare.system.timing import Workload
from compare.training.loss import TranslationLoss
from data.symbols import SPECIALS


def training_pass(
    criterion: TranslationLoss,
    *,
    batch: int,
    length: int,
    vocabulary: int,
    device: torch.device,
    precision: str = "fp32",
) -> Workload:
    """Make the work of computing the loss and its gradients on one batch without padding.

    Args:
        criterion: the loss of a model on ``device``.
        batch: sentence pairs.
        length: tokens of each source and each target.
        vocabulary: size of both vocabularies; no special symbols are drawn.
        device: where the batch is.
        precision: fp32 or bf16.
    """
    src, tgt_in, tgt_out = torch.randint(len(SPECIALS), vocabulary, (3, batch, length), device=device)
    mask, lengths = torch.ones_like(src, dtype=torch.bool), torch.full((batch,), length)

    def work() -> None:
        criterion.zero_grad(set_to_none=True)
        with autocast(device, precision):
            loss = criterion(src, mask, tgt_in, tgt_out, mask, tgt_tokens=mask.numel(), src_lengths=lengths)
        loss.minimised.backward()

    return work
