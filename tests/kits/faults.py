"""Compare docs/faults.md with the output of its tests; run a process with its own file systems."""

import json
import os
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.kits.paths import ROOT

PAGE = ROOT / "docs" / "faults.md"
SANDBOX = ["unshare", "--user", "--map-root-user", "--mount"]


class Fault(NamedTuple):
    sees: str
    status: int
    kept: str
    test: str


def faults() -> dict[str, Fault]:
    """The rows of docs/faults.md by fault."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]
    return {name: Fault(sees, int(status), kept, test) for name, sees, status, kept, test in cells}


def as_documented(name: str, status: int, err: str) -> None:
    """Assert that exit status and standard error are as documented in docs/faults.md."""
    fault = faults()[name]
    pattern = ".+".join(map(re.escape, fault.sees.split("…")))
    assert re.fullmatch(pattern, err.removesuffix("\n")), (err, fault.sees)
    assert err.count("\n") == (1 if fault.sees else 0)
    assert status == fault.status


@cache
def may_mount() -> bool:
    """Whether a process may have file systems that no other sees."""
    try:
        command = [*SANDBOX, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def in_steps(steps: list[dict[str, Any]], folder: Path, *, mounts: bool) -> list[dict[str, Any]]:
    """Do ``steps`` in one process (see tests/steps.py); gives what each command answered."""
    if mounts and not may_mount():
        pytest.skip("needs the right to mount a tmpfs in a namespace of its own")
    command = [*(SANDBOX if mounts else []), sys.executable, "-m", "tests.kits.steps", str(folder)]
    done = subprocess.run(
        command, input=json.dumps(steps), capture_output=True, text=True, cwd=ROOT, env=environment()
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


class Bomb:
    """Unpickling it would write a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.target, "boom"))


PICKLERS = [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))]
"""With torch's wrapping and without."""
