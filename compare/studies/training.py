"""Training for studies: the toolkit's loss, optimizer and step, without checkpoints and validation."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

import numpy as np
import torch

from compare.optim.config import OptimConfig
from compare.optim.optimizer import build_optimizer
from compare.studies.families import Model
from compare.training.loss import TranslationLoss
from compare.training.step import train_step
from data.batch import Batch
from data.encoded_split import EncodedSplit
from data.loader import BatchStream
from data.sequences import Sequences


def make_split(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> EncodedSplit:
    """Make a split from sequences of ids."""
    rows = np.arange(len(sources), dtype=np.int64)
    return EncodedSplit(src=Sequences.of(sources), tgt=Sequences.of(targets), rows=rows, dropped=0)


def fit(
    model: Model,
    split: EncodedSplit,
    optim: OptimConfig,
    *,
    batch_tokens: int,
    updates: int,
    seed: int,
    observe: Callable[[int], None] | None = None,
    observe_every: int = 1,
) -> None:
    """Train a model.

    Args:
        model: the model, on the CPU.
        split: its training pairs, repeated as often as needed.
        optim: optimizer and schedule; a decaying schedule ends at ``updates``.
        batch_tokens: largest number of target tokens of a batch.
        updates: number of batches.
        seed: seed of the batches.
        observe: called with the number of the update after some of them, with the model in eval mode.
        observe_every: updates from one call of ``observe`` to the next.
    """
    criterion = TranslationLoss(model, label_smoothing=0.0)
    optimizer = build_optimizer(criterion.parameters(), optim)
    stream = BatchStream(split, batch_tokens=batch_tokens, seed=seed)
    criterion.train()
    for update, batch in enumerate(islice(_endless(stream), updates), start=1):
        for group in optimizer.param_groups:
            group["lr"] = optim.learning_rate_at(update, updates)
        train_step(criterion, optimizer, batch, precision="fp32", clip_norm=1.0)
        if observe is not None and update % observe_every == 0:
            criterion.eval()
            observe(update)
            criterion.train()
    criterion.eval()


def _endless(stream: BatchStream) -> Iterator[Batch]:
    """Yield the batches of one epoch after another."""
    for epoch in count(1):
        yield from stream.epoch(epoch)


@torch.inference_mode()
def accuracy(model: Model, batch: Batch) -> float:
    """Compute the share of target tokens that are the most likely ones, given the reference before them."""
    model.eval()
    best = model(batch.src, batch.src_mask, batch.tgt_in).argmax(-1)
    return float((best == batch.tgt_out)[batch.tgt_mask].float().mean())
