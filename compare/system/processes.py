"""Signals that end a process at a safe point, and the processes that torchrun starts together.

torchrun (https://docs.pytorch.org/docs/stable/elastic/run.html) tells each process its rank by environment
variables. Process 0 decides and writes files; the others compute with it. Every method that communicates must
be called in all processes, in the same order; one process alone needs no torch.distributed.
"""

import _thread
import logging
import os
import pickle
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial, wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from compare.system.messages import first_line

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

# Handling of Ctrl-C, SIGTERM and SIGHUP: work ends at a safe point instead of in the middle.


RESEND_S = 0.05
"""Time until a signal is sent again whose exception was discarded."""


def _end_signals() -> list[int]:
    """SIGTERM, and SIGHUP of a terminal that is closed, unless it is ignored, as under nohup."""
    hangups = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # Windows has none
    return [signal.SIGTERM, *(signum for signum in hangups if signal.getsignal(signum) != signal.SIG_IGN)]


class Interrupted(Exception):
    """The end of work, its state saved, because of signal ``signum``."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(signum, message)  # these arguments make it again in another process
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message


class Terminated(BaseException):
    """SIGTERM or SIGHUP outside of ``stop_on_signals``; no ``except Exception`` stops it."""

    def __init__(self, signum: int = signal.SIGTERM) -> None:
        super().__init__(signum)
        self.status = 128 + signum


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``Terminated`` in a block, so that ``finally`` clauses clean up.

    Python discards an exception that a signal raises in a callback of its own, such as one of an import: the
    signal is then sent again.
    """

    def terminate(signum: int, _frame: FrameType | None) -> None:
        raise Terminated(signum)

    def send_again(discarded: "sys.UnraisableHookArgs") -> None:
        error = discarded.exc_value
        if isinstance(error, Terminated | KeyboardInterrupt):
            signum = error.args[0] if isinstance(error, Terminated) else signal.SIGINT
            # No threading.Timer: its start waits for its thread, and a signal that arrives in here is lost.
            _thread.start_new_thread(_signal_main_thread, (signum,))
        else:
            hook(discarded)

    hook, sys.unraisablehook = sys.unraisablehook, send_again
    try:
        with _handle(_end_signals(), terminate):
            yield
    finally:
        sys.unraisablehook = hook


def _signal_main_thread(signum: int) -> None:
    """Send a signal to the main thread, a moment later: it interrupts a wait, but not on Windows."""
    time.sleep(RESEND_S)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(cast(int, threading.main_thread().ident), signum)
    else:
        signal.raise_signal(signum)


def end_at_once() -> AbstractContextManager[object]:
    """Let signals end this process in a block that waits in C++, where Python's handlers do not run."""
    return _handle([signal.SIGINT, *_end_signals()], signal.SIG_DFL)


@contextmanager
def _handle(signums: Iterable[int], handler: Any) -> Iterator[dict[int, Any]]:
    """Set a handler in a block, without effect in another thread than the main one; yields those before."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {signum: signal.signal(signum, handler) for signum in signums if is_main}
    try:
        yield before
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


class StopRequest:
    """The request to stop."""

    signum: int | None = None
    """The signal; None while there was none."""


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Record the first SIGINT, SIGTERM or SIGHUP instead of acting on it; a second one acts as before.

    In a job of Slurm, which sends SIGTERM both to the job and to the step in it, and SIGKILL if they do not
    end, a second one has no effect. In another thread than the main one, where Python allows no handlers,
    signals keep their effect.
    """
    request = StopRequest()

    def record(signum: int, _: FrameType | None) -> None:
        request.signum = request.signum or signum
        if "SUBMITIT_EXECUTOR" not in os.environ:
            for earlier, handler in before.items():
                signal.signal(earlier, handler)

    with _handle([signal.SIGINT, *_end_signals()], record) as before:
        yield request


# Processes that torchrun has started together.


T = TypeVar("T")
JOINING = timedelta(minutes=1)
"""Longest time that processes wait for each other when they begin."""
PATIENCE = timedelta(days=7)
"""Longest time that processes wait for process 0 while it alone works, such as encoding a large corpus."""


def is_main_process() -> bool:
    """Tell, before the processes have joined, whether this one is alone or process 0."""
    return os.environ.get("RANK", "0") == "0"


def is_torchrun() -> bool:
    """Tell whether torchrun has started several processes, of which this is one."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE") != "1"


def pick_own_device(name: str) -> str:
    """Let this one of several processes of a host use its own device.

    Args:
        name: cpu, or cuda for the GPU that has the number LOCAL_RANK.

    Returns:
        The name of the device among those of this host.

    Raises:
        ValueError: there are more processes than GPUs.
    """
    if name == "cpu":
        return name
    if name != "cuda":
        raise ValueError(
            f"train.device is {name}, but several processes compute on cpu or cuda, one GPU each"
        )
    import torch

    count, wanted = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    if wanted > count:
        raise ValueError(
            f"{wanted} processes on {socket.gethostname()}, which has {count} GPUs: "
            "start at most one per GPU (torchrun --nproc-per-node), or set train.device=cpu"
        )
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return f"cuda:{torch.cuda.current_device()}"


class Processes:
    """Processes that compute together; one alone has rank 0 of 1, and nothing is sent."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        """Join the other processes, which find each other by torchrun's environment variables.

        Args:
            rank: number of this process, from 0.
            size: number of processes.
        """
        self.rank, self.size = rank, size
        self.nodes = self.devices = 1
        """Number of hosts that they run on, and of devices that they compute on; a host's CPU is one."""
        self.together = True
        """Whether all processes are at the same point, so that they can begin another ``task``."""
        self._raised: BaseException | None = None
        if size == 1:
            return
        import torch.distributed as dist

        with _name_lost_process(), end_at_once():
            store, *_ = next(dist.rendezvous("env://", rank, size, timeout=JOINING))  # type: ignore[attr-defined]
            # A store that torchrun keeps over restarts still has the addresses of processes that have ended
            # (github.com/pytorch/pytorch/issues/135712). Only on one node do all count the same restarts.
            if os.environ.get("GROUP_WORLD_SIZE") == "1":
                restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
                store = dist.PrefixStore(restarts, store)  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=JOINING)
            self._waiting = dist.new_group(backend="gloo", timeout=JOINING)
        self._tensors: Any = dist.group.WORLD
        of_torch = dist.distributed_c10d
        for group, timeout in ((self._tensors, of_torch.default_pg_timeout), (self._waiting, PATIENCE)):
            of_torch._set_pg_timeout(timeout, group)

    @property
    def is_main(self) -> bool:
        """Tell if this is process 0, which decides and writes files."""
        return self.rank == 0

    def gather(self, work: Callable[[], T]) -> list[T]:
        """Run ``work`` in every process.

        Returns:
            The results of all processes, ordered by rank, in every process.

        Raises:
            Exception: that of ``work``, in all processes if one has raised it.
            ConnectionError: another process has ended.
        """
        if self.size == 1:
            return [work()]
        import torch.distributed as dist

        mine, error = _try(work)
        gathered: list[Any] = [None] * self.size
        with _name_lost_process():
            dist.all_gather_object(gathered, (mine, _portable(error)), group=self._waiting)
        self._raise(error or next((other for _, other in gathered if other is not None), None))
        return [result for result, _ in gathered]

    def on_main(self, work: Callable[[], T]) -> T:
        """Run ``work`` in process 0 while the others wait; all get its result, or its exception."""
        if self.size == 1:
            return work()
        mine, error = _try(work) if self.is_main else (None, None)
        result, other = self.broadcast((mine, _portable(error)))
        self._raise(error or other)
        return result  # type: ignore[return-value]

    def broadcast(self, value: T) -> T:
        """Return the ``value`` of process 0 in every process."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values = [value]
        with _name_lost_process():
            dist.broadcast_object_list(values, src=0, group=self._waiting)
        return value if self.is_main else values[0]

    def sum_tensor(self, tensor: "Tensor") -> None:
        """Replace ``tensor``, of one shape in all processes, by the sum over them."""
        if self.size > 1:
            import torch.distributed as dist

            with _name_lost_process():
                dist.all_reduce(tensor, group=self._tensors)

    def broadcast_tensor(self, tensor: "Tensor") -> None:
        """Replace ``tensor``, of one shape in all processes, by that of process 0."""
        if self.size > 1:
            import torch.distributed as dist

            with _name_lost_process():
                dist.broadcast(tensor, src=0, group=self._tensors)

    def use_device(self, name: str) -> None:
        """Let this process compute on its own device of the kind ``name``, cpu or cuda.

        Raises:
            ValueError: there are more processes than devices.
        """
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        hosts = self.gather(lambda: (socket.gethostname(), pick_own_device(name)))
        self.nodes, self.devices = len({host for host, _ in hosts}), len(set(hosts))
        if name == "cuda" and self._tensors is dist.group.WORLD:
            with _name_lost_process():
                device = torch.device("cuda", torch.cuda.current_device())
                self._tensors = dist.new_group(backend="nccl", device_id=device)

    @contextmanager
    def task(self) -> Iterator[None]:
        """Mark a block that all processes run together.

        Once an exception has left it in one of several processes only, they can do nothing together any more.

        Raises:
            ConnectionError: that has happened in an earlier block.
        """
        if self.size == 1:
            yield
            return
        if not self.together:
            raise ConnectionError("the processes of this job are no longer together: run the command again")
        self.together, self._raised = False, None
        try:
            yield
        except Exception as error:
            self.together = error is self._raised
            raise
        self.together = True

    def dismiss(self) -> None:
        """Tell the other processes, which wait in ``broadcast``, that there is nothing more to do."""
        if self.together:
            self.broadcast(None)

    def _raise(self, error: BaseException | None) -> None:
        """Raise an exception that all processes raise."""
        if error is not None:
            self._raised = error
            raise error


P = ParamSpec("P")


def by_main(method: Callable[P, T]) -> Callable[P, T]:
    """Let process 0 alone run a method while the others wait; all get its result, or its exception.

    The object of the method has the attribute ``processes``. Such methods must not call each other.
    """

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        processes: Processes = args[0].processes  # type: ignore[attr-defined]
        return processes.on_main(partial(method, *args, **kwargs))

    return run


SINGLE = Processes()
"""This process alone."""


@contextmanager
def join_processes() -> Iterator[Processes]:
    """Join the processes that torchrun has started, for the time of a block; yields ``SINGLE`` without it.

    Raises:
        ConnectionError: another process has ended.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield SINGLE
        return
    import torch.distributed as dist

    processes = Processes(rank, size)
    yield processes
    dist.destroy_process_group()  # not after an exception: it could wait for a process that has ended


def _try(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:
        return None, error


def _portable(error: Exception | None) -> Exception | None:
    """Return the exception as other processes can receive it, with its traceback as a note."""
    if error is None:
        return None
    rank = os.environ["RANK"]
    error.add_note(f"in process {rank}:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever the class of the exception raises
        return RuntimeError(f"process {rank}: {type(error).__name__}: {first_line(error)}")
    return error


@contextmanager
def _name_lost_process() -> Iterator[None]:
    """Turn torch's error of a broken connection into one that says what has happened."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[\S+\] ", "", first_line(error)).partition(". ")[0]  # without torch's own file
        raise ConnectionError(
            "another process of this job has ended or cannot be reached; run the same command again to "
            f"continue ({reason})"
        ) from None
