"""Child processes: their places, messages and ends; signals to the parent; a parent that is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.system.children import run_children
from compare.system.log import Reporter
from compare.system.signals import Interrupted
from compare.system.slots import Slot
from tests.kits.children import task
from tests.kits.paths import ROOT

QUIET = Reporter(quiet=True)
ONE = [Slot(threads=1)]
posix = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@posix
def test_each_child_has_the_place_of_its_slot():
    core = min(os.sched_getaffinity(0))
    slots = [Slot(threads=3, processors=[core]), Slot(threads=1, gpu="7")]
    outcomes = run_children([task("place", label=name) for name in "ab"], slots, QUIET)
    assert {each.name: (each.kind, each.value) for each in outcomes} == {
        "a": ("done", ["3", [core], os.environ.get("CUDA_VISIBLE_DEVICES")]),
        "b": ("done", ["1", sorted(os.sched_getaffinity(0)), "7"]),
    }


def test_messages_and_metrics_reach_the_parent(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    with caplog.at_level("INFO", logger="compare"):
        (outcome,) = run_children([task("talk", label="name")], ONE, QUIET)
    assert (outcome.kind, outcome.value) == ("done", "value")
    assert caplog.messages[1:] == ["name: sent", "row 3/7 1 s: loss 2.500, 10 tokens/s"]
    assert capfd.readouterr().err == "a library prints this\n"


@posix
def test_however_a_child_ends_the_others_go_on(capfd: pytest.CaptureFixture[str]):
    names = ["mistake", "full", "locked", "bug", "die", "stop_self", "talk"]
    seen: list[str] = []
    outcomes = run_children(
        [task(name) for name in names], ONE * 2, QUIET, lambda each: seen.append(each.name)
    )
    assert sorted(seen) == sorted(names)
    assert {each.name: (each.kind, each.text) for each in outcomes} == {
        "mistake": ("error", "a mistake"),
        "full": ("error", "some/file: No space left on device"),
        "locked": ("locked", "in use"),
        "bug": ("died", "its process was ended with status 1"),
        "die": ("died", "its process was killed by SIGKILL"),
        "stop_self": ("died", "stopped at update 1 of 2"),
        "talk": ("done", ""),
    }
    assert "RuntimeError: a bug" in capfd.readouterr().err


def signals_once_begun(begun: Path, *signums: int) -> threading.Thread:
    """Sends signals to this process, one after another, once a child has noted its process in ``begun``."""

    def send() -> None:
        wait_for(lambda: begun.exists() and begun.read_text())
        for signum in signums:
            os.kill(os.getpid(), signum)
            time.sleep(0.3)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@posix
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_no_child_is_begun_any_more(tmp_path: Path, signum: int):
    begun = tmp_path / "begun"
    thread = signals_once_begun(begun, signum)
    tasks = [task("work", str(begun)), task("work", str(tmp_path / "never"), label="never")]
    with pytest.raises(Interrupted, match=f"^work stopped by {signal.SIGTERM:d}$") as stop:
        run_children(tasks, ONE, QUIET)
    thread.join()
    assert stop.value.signum == signum
    assert not (tmp_path / "never").exists()
    assert not is_running(int(begun.read_text()))


@posix
def test_a_second_signal_kills_the_children(tmp_path: Path):
    begun = tmp_path / "begun"
    thread = signals_once_begun(begun, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_children([task("hang", str(begun))], ONE, QUIET)
    thread.join()
    assert not is_running(int(begun.read_text()))


@posix
def test_children_end_with_a_killed_parent(tmp_path: Path):
    begun = tmp_path / "begun"
    code = (
        "import sys; from compare.system.children import *; from tests.kits.children import task\n"
        "run_children([task('hang', sys.argv[1])], [Slot(threads=1)], Reporter(quiet=True))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(begun)], cwd=ROOT)
    wait_for(lambda: begun.exists() and begun.read_text())
    child = int(begun.read_text())
    assert is_running(child)
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_running(child))
