"""The entry point: Ctrl-C ends the program without a traceback at any time, also while Python ends."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, signal, sys
import compare.cli
from compare.__main__ import main

{}
sys.exit(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="another way to send signals")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("compare.cli.main = lambda: os.kill(os.getpid(), signal.SIGINT) or 0", 130),
        (
            "compare.cli.main = lambda: 130\natexit.register(os.kill, os.getpid(), signal.SIGINT)",
            -signal.SIGINT,
        ),
    ],
)
def test_a_second_interrupt_prints_no_traceback(code: str, status: int):
    """The first case is Ctrl-C while another one is handled, the second Ctrl-C while Python ends."""
    command = [sys.executable, "-c", PROGRAM.format(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
