"""The runs of the tiny experiment, and the state of the files in a folder."""

from pathlib import Path

ROWS = ("luong-seed1", "transformer-seed1")


def files(folder: Path) -> dict[Path, tuple[int, int] | None]:
    """Modification time and size of every file in ``folder``; None for folders, which a lock touches."""
    return {
        path: None if path.is_dir() else (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
    }
