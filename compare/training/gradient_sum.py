"""Data parallelism: one all-reduce per update sums gradients, loss and requests to stop over processes."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from compare.system.distributed import Processes
from compare.system.signals import StopRequest
from compare.training.serialization import model_weights

T = TypeVar("T")


class GradientSum:
    """Gradients of one model in several processes, each of which computes a share of every global batch.

    All gradients are views of one tensor, which is summed by a single all-reduce. Its last two elements are
    the loss and the number of processes that have received a signal or raised an exception. So all processes
    learn of either after the same update, and none waits for one that has left.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], processes: Processes) -> None:
        """Prepare the tensor of all gradients; one process alone needs none.

        Args:
            parameters: of the model, all of one dtype.
            processes: those that train together.
        """
        self.processes = processes
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.failure: Exception | None = None
        """What this process has raised since the last update; the others learn of it in ``stop_signal``."""
        if processes.size == 1:
            return
        sizes = [parameter.numel() for parameter in self.parameters]
        self._sums = self.parameters[0].new_zeros(sum(sizes) + 2)
        self._views = [
            view.view_as(parameter)
            for view, parameter in zip(torch.split(self._sums[:-2], sizes), self.parameters, strict=True)
        ]
        self._previous = self._read_requests()

    def compute(self, work: Callable[[], Tensor], stop: StopRequest) -> Tensor:
        """Compute the gradients of this process's share and sum those of all shares.

        Args:
            work: adds the gradients of the share to those of the parameters, and returns its loss, scalar.
            stop: the signals that this process has received.

        Returns:
            The loss of all shares, scalar, in every process.
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
        """Run ``work``; among several processes, keep its exception for ``stop_signal`` and return None."""
        try:
            return work()
        except Exception as error:
            if self.processes.size == 1:
                raise
            self.failure = self.failure or error
            return None

    def stop_signal(self, stop: StopRequest, *, must_know: bool) -> int | None:
        """Return the signal that any process has received, in all processes after the same update.

        On a GPU, waiting for every sum would leave it idle: there the request is that of the update before,
        unless the answer must be known now.

        Args:
            stop: the signals that this process has received.
            must_know: whether the weights of this update are about to be validated or saved.

        Raises:
            Exception: what ``attempt`` has kept in any process; all processes raise it.
        """
        if self.processes.size == 1:
            return stop.signum
        latest = self._read_requests()
        request, self._previous = (self._previous if latest[1] else latest), latest
        if not must_know and not _value(*request):
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

    def _read_requests(self) -> tuple[Tensor, "torch.cuda.Event | None"]:
        """Copy the number of requests to the CPU; the copy from a GPU is complete after the event."""
        if not self._sums.is_cuda:
            return self._sums[-1].clone(), None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        requests = self._sums[-1].to("cpu", non_blocking=True)  # in pinned memory
        event.record()
        return requests, event


def _value(requests: Tensor, event: "torch.cuda.Event | None") -> float:
    if event is not None:
        event.synchronize()
    return float(requests)


def dropout_seed(seed: int, update: int, rank: int) -> int:
    """Return the seed of dropout in one update of one of several processes.

    It depends on nothing that has happened before, so training can be resumed with any number of processes.
    """
    return int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0] >> 1)
