"""Whole commands on damaged files: one clear line or a result; never a traceback, never a command that hangs.

A short run by default; ``ATTNBENCH_FUZZ=1000 pytest -s tests/faults/test_fuzz_commands.py`` makes as many new
inputs of each kind, 50 more for new interpreters, and prints the table.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kits.faults import ROOT, environment
from tests.kits.fuzz import INPUTS
from tests.kits.fuzz_commands import KINDS

SHORT = 4
"""Inputs of each kind in a short run."""
PROCESSES = 50
"""Further inputs of each kind in a long run, each in a new interpreter."""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_damaged_files_through_whole_commands(tmp_path: Path):
    seed = str(time.time_ns()) if INPUTS else "fixed"
    numbers = [str(INPUTS), str(PROCESSES)] if INPUTS else [str(SHORT), "0"]
    command = [sys.executable, "-m", "tests.kits.fuzz_commands", str(tmp_path), *numbers, seed]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(), check=False, timeout=None
    )
    assert done.returncode == 0, done.stderr
    counts = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(counts) == len(KINDS)
    print("kind, inputs, processes, refused, accepted, tracebacks, unclear, hangs")
    for count in counts:
        names = ("kind", "inputs", "processes", "refused", "accepted", "traceback", "unclear", "hang")
        print(*(count.get(name, 0) for name in names), sep=", ")
    for count in counts:
        assert not count["examples"], count["examples"][0]
        assert count["refused"] > 0
