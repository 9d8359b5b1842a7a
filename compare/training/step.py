"""The optimizer step, shared by the trainer and the benchmark, and the sum of gradients over processes."""

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from compare.config.sections import TrainConfig
from compare.system.device import autocast
from compare.system.processes import Processes, StopRequest
from compare.training.checkpoints import model_weights
from compare.training.loss import LossSums, TranslationLoss
from data.batches import Batch

# The optimizer step, shared by the trainer and the benchmark of training speed.


def add_gradients(
    criterion: TranslationLoss, parts: Iterable[Batch], train: TrainConfig, *, tokens: int
) -> LossSums:
    """Add the gradients of a batch, or of one process's share of it, to those of the parameters.

    ``parts`` are the batch, on the model's device, whole, in parts, or in none; ``tokens`` are the target
    tokens of the update in all processes, by which the loss is divided. The loss is returned without
    gradient, summed over the tokens of ``parts``.
    """
    device = next(criterion.parameters()).device
    total = LossSums(torch.zeros((), device=device), torch.zeros((), device=device), 0)
    for part in parts:
        with autocast(device, train.precision):
            loss = compute_loss(criterion, part)
        (loss.minimised / tokens).backward()  # type: ignore[no-untyped-call]
        total = LossSums(
            total.minimised + loss.minimised.detach(), total.nll + loss.nll, total.tokens + loss.tokens
        )
    return total


def update_weights(
    criterion: TranslationLoss, optimizer: torch.optim.Optimizer, train: TrainConfig
) -> Tensor:
    """Clip the gradients to ``clip_norm`` (0: not), take one optimizer step and delete the gradients.

    Returns the norm of the gradient before clipping.
    """
    norm = nn.utils.clip_grad_norm_(criterion.parameters(), train.clip_norm or math.inf)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def train_step(
    criterion: TranslationLoss, optimizer: torch.optim.Optimizer, train: TrainConfig, *parts: Batch
) -> tuple[LossSums, Tensor]:
    """Update the weights once on the mean loss per target token of a batch, whole or in parts.

    Returns the loss and the norm of the gradient before clipping; arguments as for the two functions above.
    """
    tokens = sum(part.tgt_tokens for part in parts)
    loss = add_gradients(criterion, parts, train, tokens=tokens)
    return loss, update_weights(criterion, optimizer, train)


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


# Data parallelism: one all-reduce per update sums gradients, loss and requests to stop over processes.


T = TypeVar("T")


class GradientSum:
    """Gradients of one model in several processes, each of which computes a share of every global batch.

    All gradients, of one dtype, are views of one tensor, which is summed by a single all-reduce. Its last two
    elements are the loss and the number of processes that have received a signal or raised an exception, so
    that all processes learn of either after the same update, and none waits for one that has left. One
    process alone needs none of this.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], processes: Processes) -> None:
        self.processes = processes
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.failure: Exception | None = None
        """Exception of this process since the last update; the others learn of it in ``stop_signal``."""
        if processes.size == 1:
            return
        sizes = [parameter.numel() for parameter in self.parameters]
        self._sums = self.parameters[0].new_zeros(sum(sizes) + 2)
        self._views = [
            view.view_as(parameter)
            for view, parameter in zip(torch.split(self._sums[:-2], sizes), self.parameters, strict=True)
        ]

    def compute(self, work: Callable[[], Tensor], stop: StopRequest) -> Tensor:
        """Compute the gradients of this process's share, by ``work``, and sum those of all shares.

        Returns the sum of the losses of all shares.
        """
        if self.processes.size == 1:
            return work()
        self._sums.zero_()
        for parameter, view in zip(self.parameters, self._views, strict=True):
            parameter.grad = view
        loss = self.attempt(work)
        if loss is None:
            self._sums.zero_()
        else:
            self._sums[-2] = loss
        self._sums[-1] = float(bool(stop.signum) or self.failure is not None)
        self.processes.sum_tensor(self._sums)
        return self._sums[-2].clone()

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Run ``work``; among several processes, save its exception for ``stop_signal`` and return None."""
        try:
            return work()
        except Exception as error:
            if self.processes.size == 1:
                raise
            self.failure = self.failure or error
            return None

    def stop_signal(self, stop: StopRequest, *, must_know: bool) -> int | None:
        """Return the signal that any process has received, in all processes after the same update.

        With ``must_know`` False a GPU, which would be idle if every sum were waited for, is not asked. An
        exception that ``attempt`` has kept in any process is raised in all.
        """
        if self.processes.size == 1:
            return stop.signum
        if (self._sums.is_cuda and not must_know) or not float(self._sums[-1]):
            return None
        return next(filter(None, self.processes.gather(lambda: self._signal_or_failure(stop))), None)

    def share_weights(self, model: nn.Module) -> None:
        """Give all processes the weights and persistent buffers that ``model`` has in process 0."""
        for tensor in model_weights(model).values():
            self.processes.broadcast_tensor(tensor)

    def _signal_or_failure(self, stop: StopRequest) -> int | None:
        if self.failure is not None:
            raise self.failure
        return stop.signum


def dropout_seed(seed: int, update: int, rank: int) -> int:
    """Return the seed of dropout in one update of one of several processes, whatever happened before."""
    return int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0]) >> 1
