"""One HTTP transfer from one mirror into a file that may hold its first part already.

What a server can do wrong is a ``MirrorError``; what the disk does wrong stays an ``OSError``.
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

Show = Callable[[int, int | None], None]
"""Called with the bytes there are so far, and their number in the end where the server says it."""


class MirrorError(Exception):
    """What a mirror did, in words that fit behind its address."""


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
    """Append to ``part`` what it lacks, or write it anew where the server cannot go on from there.

    Args:
        url: where the file is.
        part: open for appending; what has come in stays in it whatever happens.
        tag: file beside ``part`` that says of which version of which address it is the beginning.
        length: how many bytes the file has, where that is known beforehand.
        verified: whether a hash will be compared in the end. Without one, a part is continued only if the
            server vouches that it is of the same version, and the server must say how long the file is.
        timeout_s: the longest silence, in seconds.
        show: told how far it is.
    """
    size = part.seek(0, 2)
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity", **_resume(url, size, tag, verified)}
    try:
        with _open(Request(url, headers=headers), timeout_s) as response:
            said = _begin(response, part, size)
            tag.write_text(f"{url}\n{_version(response)}", encoding="utf-8")
            if length and said and said != length:
                raise MirrorError(f"its file has {said:,} bytes, the right one {length:,}")
            if not (length or said or verified):
                raise MirrorError("does not say how long the file is, and no hash of it is known")
            _copy(response, part, length or said, show)
    except HTTPError as error:
        if error.code != 416:
            raise MirrorError(f"{error.code} {error.reason}".splitlines()[0].strip()) from None
        if error.headers.get("Content-Range") != f"bytes */{size}":  # else: all of it was there already
            part.truncate(0)
            raise MirrorError("its file is shorter than what was fetched before") from None


def _open(request: Request, timeout_s: float) -> Any:
    """Ask for the file, through redirections; an answer other than success stays an ``HTTPError``."""
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
    """The headers that ask for the rest; none where the beginning cannot be trusted to fit."""
    of, _, version = tag.read_text(encoding="utf-8").partition("\n") if tag.is_file() else ("", "", "")
    same = of == url and bool(version)
    if not size or not (same or verified):
        return {}
    return {"Range": f"bytes={size}-"} | ({"If-Range": version} if same else {})


def _version(response: Any) -> str:
    """What tells one version of a file from another; a weak ETag does not."""
    tag: str = response.headers.get("ETag", "")
    modified: str = response.headers.get("Last-Modified", "")
    return tag if tag.startswith('"') else modified


def _begin(response: Any, part: IO[bytes], size: int) -> int | None:
    """Make ``part`` end where the answer starts; returns the size of the whole file, if it is said."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if span is None or int(span[1]) != size:
            part.truncate(0)  # else it would ask the same again for ever
            raise MirrorError(f"sends another part than asked for, not the one from byte {size}")
        return int(span[2])
    part.truncate(0)
    length = response.headers.get("Content-Length")
    return int(length) if length else None


def _copy(response: Any, part: IO[bytes], total: int | None, show: Show) -> None:
    """Write the answer's body to the end of ``part``."""
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
    """Some bytes, none at the end; reading alone is guarded, so that a full disk is not the mirror's."""
    try:
        chunk: bytes = response.read1(CHUNK_BYTES)
        return chunk
    except (HTTPException, OSError) as error:
        of = "" if total is None else f" of {total:,}"
        raise MirrorError(f"{_reason(error)} after {done:,}{of} bytes") from None


def _reason(error: object) -> str:
    """An exception in a few words."""
    if isinstance(error, TimeoutError):
        return "falls silent"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
