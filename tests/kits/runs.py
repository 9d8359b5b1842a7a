"""The runs of the tiny experiment, and the state of the files in a folder."""

from collections.abc import Sequence
from pathlib import Path

from compare.config.parse import load_experiment
from compare.config.resolve import Run, resolve_models

ROWS = ("luong-seed1", "transformer-seed1")


def files(folder: Path) -> dict[Path, tuple[int, int] | None]:
    """Modification time and size of every file in ``folder``; None for folders, which a lock touches."""
    return {
        path: None if path.is_dir() else (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
    }


def first_run(toml: Path, settings: Sequence[str] = ()) -> Run:
    """The first model of an experiment, resolved, with the seed of ``[train]``."""
    return resolve_models(load_experiment(toml, settings))[0]
