"""What the tests of whole runs share: the rows of the tiny experiment, and what stands in a folder."""

from pathlib import Path

ROWS = ("luong-seed1", "transformer-seed1")


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}
