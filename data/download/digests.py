"""Hashes of downloaded files: published ones, and those that a first download records beside the data."""

import hashlib
import json
from pathlib import Path

from data.text.files import write_atomically

RECORD = "sha256.json"
"""Beside the downloads: the sha256 of each file of which nobody has published one, as first seen."""


def expected_digest(folder: Path, name: str, published: str) -> str:
    """What a file must hash to, as "sha256:..." or "md5:...": the published digest, else the recorded one.

    Empty where there is neither.
    """
    return published or _recorded(folder / RECORD).get(name, "")


def mismatch(path: Path, digest: str) -> str:
    """Why the file at ``path`` is not the one with ``digest``; empty where it is."""
    algorithm, _, value = digest.partition(":")
    found = file_digest(path, algorithm)
    return "" if found == value else f"its {algorithm} is {found}, not {value}"


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The hash of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def record_digest(folder: Path, name: str, path: Path) -> str:
    """Remember the hash of a file seen for the first time, and return it."""
    digest = f"sha256:{file_digest(path)}"
    known = {**_recorded(folder / RECORD), name: digest}
    write_atomically(folder / RECORD, json.dumps(known, indent=2, sort_keys=True) + "\n")
    return digest


def _recorded(path: Path) -> dict[str, str]:
    """The record, empty where there is none yet."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
        if isinstance(content, dict) and all(_is_digest(value) for value in content.values()):
            return content
    except ValueError:
        pass
    raise ValueError(f"{path}: damaged record of hashes; delete it, and the downloads beside it")


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and value.startswith("sha256:")
