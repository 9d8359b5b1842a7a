"""One HTTP transfer from one mirror to a file that may hold the first part already.

Faults of the server are raised as ``MirrorError``, faults of the disk as ``OSError``.
"""

import re
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

CHUNK_BYTES = 1 << 16
AGENT = "attnbench"  # some servers refuse Python's own name

BytesCallback = Callable[[int, int | None], None]
"""Called with the bytes so far and their final number (None: the server does not say it)."""


class MirrorError(Exception):
    """A fault of a mirror; the message continues a sentence that begins with its URL."""


def pull(
    url: str,
    part: IO[bytes],
    *,
    tag: Path,
    length: int | None,
    verified: bool,
    timeout_s: float,
    progress: BytesCallback,
) -> None:
    """Append the missing bytes to ``part``, or rewrite it if the server cannot resume.

    Args:
        url: address of the file.
        part: file open for appending; bytes that were received stay in it whatever happens.
        tag: file beside ``part`` that records the URL and the version whose beginning ``part`` is.
        length: size of the file in bytes, if known beforehand.
        verified: whether the caller compares a hash afterwards. If not, ``part`` is continued only if the
            server confirms that the version is the same, and the server must state the length.
        timeout_s: longest silence, in seconds.
        progress: called after each chunk.

    Raises:
        MirrorError: the server fails, or offers another file.
        OSError: ``part`` or ``tag`` cannot be written.
    """
    size = part.seek(0, 2)
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity", **_resume(url, size, tag, verified)}
    try:
        with _open(Request(url, headers=headers), timeout_s) as response:
            stated = _begin(response, part, size)
            tag.write_text(f"{url}\n{_version(response)}", encoding="utf-8")
            if length and stated and stated != length:
                raise MirrorError(f"its file has {stated:,} bytes, the right one {length:,}")
            if not (length or stated or verified):
                raise MirrorError("does not say how long the file is, and no hash of it is known")
            _copy(response, part, length or stated, progress)
    except HTTPError as error:
        if error.code != 416:
            raise MirrorError(f"{error.code} {error.reason}".splitlines()[0].strip()) from None
        if error.headers.get("Content-Range") != f"bytes */{size}":  # else ``part`` is complete
            part.truncate(0)
            raise MirrorError("its file is shorter than what was fetched before") from None


def _open(request: Request, timeout_s: float) -> Any:
    """Request the file, following redirects; an unsuccessful status stays an ``HTTPError``."""
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
    """Return the headers that request the rest; none if the first part may be of another version."""
    tag_url, _, version = tag.read_text(encoding="utf-8").partition("\n") if tag.is_file() else ("", "", "")
    same = tag_url == url and bool(version)
    if not size or not (same or verified):
        return {}
    return {"Range": f"bytes={size}-"} | ({"If-Range": version} if same else {})


def _version(response: Any) -> str:
    """Return what identifies a version of the file (RFC 9110: If-Range takes no weak ETag)."""
    tag: str = response.headers.get("ETag", "")
    modified: str = response.headers.get("Last-Modified", "")
    return tag if tag.startswith('"') else modified


def _begin(response: Any, part: IO[bytes], size: int) -> int | None:
    """Make ``part`` end where the response starts; returns the size of the whole file, if stated."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if span is None or int(span[1]) != size:
            part.truncate(0)  # or the next request would be the same
            raise MirrorError(f"sends another part than asked for, not the one from byte {size}")
        return int(span[2])
    part.truncate(0)
    length = response.headers.get("Content-Length")
    return int(length) if length else None


def _copy(response: Any, part: IO[bytes], total: int | None, progress: BytesCallback) -> None:
    """Append the body of the response to ``part``."""
    done = part.seek(0, 2)
    progress(done, total)
    while chunk := _read(response, done, total):
        part.write(chunk)
        done += len(chunk)
        progress(done, total)
    part.flush()
    if total is not None and done != total:
        raise MirrorError(f"stops after {done:,} of {total:,} bytes")


def _read(response: Any, done: int, total: int | None) -> bytes:
    """Read some bytes, none at the end; only reading is guarded: a full disk is no fault of the mirror."""
    try:
        chunk: bytes = response.read1(CHUNK_BYTES)
        return chunk
    except (HTTPException, OSError) as error:
        of = "" if total is None else f" of {total:,}"
        raise MirrorError(f"{_reason(error)} after {done:,}{of} bytes") from None


def _reason(error: object) -> str:
    """Describe an exception in a few words."""
    if isinstance(error, TimeoutError):
        return "falls silent"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
