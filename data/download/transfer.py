"""One HTTP transfer from one mirror to a file that may hold the first part already.

Faults of the server or the network raise ``MirrorError``; faults of the disk remain ``OSError``.
"""

import re
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

CHUNK_BYTES = 1 << 16
AGENT = "attnbench"  # some servers reject urllib's default

Show = Callable[[int, int | None], None]
"""Called with the bytes received, and the bytes in total if these are known."""


class MirrorError(Exception):
    """Fault of a mirror; the message is meant to follow the mirror's URL."""


def pull(
    url: str,
    part: IO[bytes],
    *,
    tag: Path,
    length: int | None,
    verified: bool,
    timeout_s: float,
    show: Show,
) -> None:
    """Append the rest of the file to ``part``, or replace ``part`` if the server cannot resume there.

    Args:
        url: URL of the file.
        part: the unfinished file, open for appending; it keeps the received bytes after an error too.
        tag: file beside ``part`` with the URL and the version that ``part`` is the beginning of.
        length: expected size in bytes; None: unknown.
        verified: whether the caller compares a digest afterwards. If not, ``part`` is resumed only if the
            server confirms that the version is the same, and the server must state the size of the file.
        timeout_s: longest time without data, in seconds.
        show: callback for the progress, in bytes.

    Raises:
        MirrorError: the server cannot be reached, refuses, or sends something else than the file.
        OSError: ``part`` or ``tag`` cannot be written.
    """
    size = part.seek(0, 2)
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity", **_resume(url, size, tag, verified)}
    try:
        with _open(Request(url, headers=headers), timeout_s) as response:
            said = _truncate_to_start(response, part, size)
            tag.write_text(f"{url}\n{_version(response)}", encoding="utf-8")
            if length and said and said != length:
                raise MirrorError(f"its file has {said:,} bytes, the right one {length:,}")
            if not (length or said or verified):
                raise MirrorError("does not state the length of the file, and no hash of it is known")
            _copy(response, part, length or said, show)
    except HTTPError as error:
        if error.code != 416:
            raise MirrorError(f"{error.code} {error.reason}".splitlines()[0].strip()) from None
        if error.headers.get("Content-Range") != f"bytes */{size}":  # if equal, the file was complete already
            part.truncate(0)
            raise MirrorError("its file is shorter than the part downloaded before") from None


def _open(request: Request, timeout_s: float) -> Any:
    """Send the request and follow redirections; an error status is raised as ``HTTPError``."""
    try:
        return urlopen(request, timeout=timeout_s)
    except HTTPError as error:
        error.close()
        raise
    except URLError as error:
        raise MirrorError(_reason(error.reason)) from None
    except (HTTPException, OSError) as error:
        raise MirrorError(_reason(error)) from None


def _resume(url: str, size: int, tag: Path, verified: bool) -> dict[str, str]:
    """Build the headers that request the rest; none if ``part`` may belong to another version."""
    source, _, version = tag.read_text(encoding="utf-8").partition("\n") if tag.is_file() else ("", "", "")
    same_source = source == url and bool(version)
    if not size or not (same_source or verified):
        return {}
    return {"Range": f"bytes={size}-"} | ({"If-Range": version} if same_source else {})


def _version(response: Any) -> str:
    """Return the response's ETag or date as its version; a weak ETag does not identify the bytes."""
    tag: str = response.headers.get("ETag", "")
    modified: str = response.headers.get("Last-Modified", "")
    return tag if tag.startswith('"') else modified


def _truncate_to_start(response: Any, part: IO[bytes], size: int) -> int | None:
    """Truncate ``part`` to where the response starts; returns the size of the whole file if it is stated."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if span is None or int(span[1]) != size:
            part.truncate(0)  # otherwise the next call would repeat the same request
            raise MirrorError(f"sends another part than requested, not the one from byte {size}")
        return int(span[2])
    part.truncate(0)
    length = response.headers.get("Content-Length")
    return int(length) if length else None


def _copy(response: Any, part: IO[bytes], total: int | None, show: Show) -> None:
    """Append the body of the response to ``part``."""
    done = part.seek(0, 2)
    show(done, total)
    while chunk := _read(response, done, total):
        part.write(chunk)
        done += len(chunk)
        show(done, total)
    part.flush()
    if total is not None and done != total:
        raise MirrorError(f"stops after {done:,} of {total:,} bytes")


def _read(response: Any, done: int, total: int | None) -> bytes:
    """Read a chunk, empty at the end; errors of reading, but not of writing, are the mirror's."""
    try:
        chunk: bytes = response.read1(CHUNK_BYTES)
        return chunk
    except (HTTPException, OSError) as error:
        of_total = "" if total is None else f" of {total:,}"
        raise MirrorError(f"{_reason(error)} after {done:,}{of_total} bytes") from None


def _reason(error: object) -> str:
    """Summarise an exception in a few words."""
    if isinstance(error, TimeoutError):
        return "falls silent"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
