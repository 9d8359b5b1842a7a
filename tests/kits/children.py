"""Functions that child processes call in tests; nothing heavy is imported."""

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from compare.system.child import Channel
from compare.system.children import Task
from compare.system.signals import Interrupted, Locked, stop_on_signals


def task(name: str, *arguments: Any, label: str = "") -> Task:
    """The task of calling one of the functions below."""
    return Task(name=label or name, function=f"{__name__}:{name}", arguments=arguments)


def place(channel: Channel) -> tuple[str | None, list[int], str | None]:
    return (
        os.environ.get("OMP_NUM_THREADS"),
        sorted(os.sched_getaffinity(0)),
        os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def talk(channel: Channel) -> str:
    print("a library prints this")
    logger = logging.getLogger("compare.kit")
    logger.warning("not sent")
    with channel.messages(), channel.reporter("row").training("label", 7) as report:
        logger.info("sent")
        report({"kind": "train", "update": 3, "seconds": 1.0, "loss": 2.5, "tokens_per_s": 10.0})
    return "value"


def mistake(channel: Channel) -> None:
    raise ValueError("a mistake")


def full(channel: Channel) -> None:
    raise OSError(28, "No space left on device", "some/file")


def locked(channel: Channel) -> None:
    raise Locked("in use")


def bug(channel: Channel) -> None:
    raise RuntimeError("a bug")


def die(channel: Channel) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop_self(channel: Channel) -> None:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        while not stop.signum:
            time.sleep(0.01)
    raise Interrupted(stop.signum, "stopped at update 1 of 2")


def work(channel: Channel, begun: str) -> None:
    """Work until a signal arrives, and note the process."""
    with stop_on_signals() as stop:
        Path(begun).write_text(str(os.getpid()))
        while not stop.signum:
            time.sleep(0.01)
    raise Interrupted(stop.signum, f"stopped by {stop.signum:d}")


def hang(channel: Channel, begun: str) -> None:
    """Ignore all signals that can be ignored."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    Path(begun).write_text(str(os.getpid()))
    while True:
        time.sleep(1)
