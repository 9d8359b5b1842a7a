"""Digests of downloaded files: published ones, and those that a first download records."""

import json
from pathlib import Path

from data.text.files import hash_file, parse_json, read_bytes, write_atomically

RECORD = "sha256.json"
"""File beside the downloads; holds the sha256 of each file without published digest at its first download."""
MAX_RECORD_BYTES = 10_000_000
"""Size that no record of downloaded files reaches."""


def expected_digest(folder: Path, name: str, published: str) -> str:
    """Look up the digest that a download must have.

    Args:
        folder: folder of the downloads.
        name: name of the file in ``folder``.
        published: published digest, which is preferred to the recorded one; empty if there is none.

    Returns:
        "sha256:..." or "md5:..."; empty if no digest is published or recorded.

    Raises:
        ValueError: the record is damaged.
    """
    return published or _read_record(folder / RECORD).get(name, "")


def mismatch(path: Path, digest: str) -> str:
    """Compare a file with its digest; returns the difference in words, empty if there is none."""
    algorithm, _, expected = digest.partition(":")
    actual = hash_file(path, algorithm)
    return "" if actual == expected else f"its {algorithm} is {actual}, not {expected}"


def record_digest(folder: Path, name: str, path: Path) -> str:
    """Record the sha256 of the file ``name`` of ``folder``, stored at ``path``, and return it."""
    digest = f"sha256:{hash_file(path)}"
    digests = {**_read_record(folder / RECORD), name: digest}
    write_atomically(folder / RECORD, json.dumps(digests, indent=2, sort_keys=True) + "\n")
    return digest


def _read_record(path: Path) -> dict[str, str]:
    """Read the recorded digests by file name; empty if there is no record yet."""
    if not path.is_file():
        return {}
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_RECORD_BYTES))
        if isinstance(content, dict) and all(_is_digest(value) for value in content.values()):
            return content
    except ValueError:
        pass
    raise ValueError(f"{path}: damaged record of hashes; delete it and the downloads beside it")


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and value.startswith("sha256:")
