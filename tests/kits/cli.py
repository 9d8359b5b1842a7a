"""Helpers for tests of the command line: a real process, a damaged corpus."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

Refusal = Callable[..., str]


def corpus_with(tiny_toml: Path, tmp_path: Path, name: str, content: bytes | None) -> Path:
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    if content is None:
        (root / name).unlink()
    else:
        (root / name).write_bytes(content)
    return root


def real(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", "compare", *map(str, arguments)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment, check=False, timeout=120
    )
