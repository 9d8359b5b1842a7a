"""Helpers for tests of the command line: the type of a fixture, a damaged corpus."""

import shutil
from collections.abc import Callable
from pathlib import Path

Refusal = Callable[..., str]


def corpus_with(tiny_toml: Path, tmp_path: Path, name: str, content: bytes | None) -> Path:
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    if content is None:
        (root / name).unlink()
    else:
        (root / name).write_bytes(content)
    return root
