"""A hash that takes long to compute, kept in a file beside the data that it depends on."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from data.text.files import json_bytes, parse_json, read_bytes, write_atomically
from data.text.lines import hash_texts

MAX_BYTES = 10_000
"""Size that no such file reaches."""


def kept_hash(
    folder: Path, key: Mapping[str, str | int], compute: Callable[[], str], *, keep: bool = True
) -> str:
    """Return the hash that an earlier call has kept for the same key, or compute and keep it.

    A file that is damaged or has another key is replaced; nothing is kept where ``folder`` cannot be written.

    Args:
        folder: an existing folder.
        key: all that the hash depends on.
        compute: computes the hash.
        keep: False if nothing may be written.
    """
    path = folder / f"batches-{hash_texts([json_bytes(key).decode()])[:16]}.json"
    with suppress(OSError, ValueError, TypeError):
        content = dict(parse_json(read_bytes(path, max_bytes=MAX_BYTES)))
        value = content.pop("sha256", None)
        if content == key and isinstance(value, str):
            return value
    value = compute()
    if keep:
        with suppress(OSError):
            write_atomically(path, json_bytes({**key, "sha256": value}))
    return value
