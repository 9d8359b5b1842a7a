"""Folders of experiments that are shown but not written: published and read-only ones."""

import os
from pathlib import Path

from compare.results.store import read_registry


def write_protection(folder: Path) -> str:
    """Return "published" or "read-only" if nothing may be written into an experiment's folder, else "".

    A folder whose write permissions have all been taken away is read-only for the superuser too.

    Raises:
        ValueError: experiment.json is damaged.
    """
    registry = folder / "experiment.json"
    if registry.is_file() and "published" in read_registry(registry):
        return "published"
    if not folder.is_dir() or (os.access(folder, os.W_OK) and folder.stat().st_mode & 0o222):
        return ""
    return "read-only"


def check_output_folder(folder: Path) -> None:
    """Raise ValueError if ``folder`` is a file, or an experiment that nothing may be written into."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: choose another one with --out")
    refuse_writing(folder, "choose another folder with --out")


def refuse_writing(folder: Path, remedy: str) -> None:
    """Raise ValueError if an experiment's folder is published or read-only.

    Args:
        folder: the folder; it need not exist.
        remedy: what to do instead, for the message.
    """
    if protection := write_protection(folder):
        raise ValueError(f"{folder} is {protection}: {remedy}")
