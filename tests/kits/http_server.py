"""A web server of our own, on this machine, that can do wrong what web servers do wrong."""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from data.download import Remote, download

CONTENT = random.Random(6).randbytes(100_001)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
TIMEOUT_S = 0.5
Answer = Callable[["Handler", bytes], None]


class Asked(NamedTuple):
    path: str
    range: str | None


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.server.asked.append(Asked(self.path, self.headers["Range"]))
        if self.path not in self.server.answers:
            return self.send_error(404)
        answer, content = self.server.answers[self.path]
        answer(self, content)

    def start(self, content: bytes, *, ranges: bool = True) -> bytes:
        """Send the head of a right answer; returns the body that it promises."""
        wanted = self.headers["Range"]
        first = 0
        if wanted and ranges:
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if first >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return b""
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        return content[first:]

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[Answer, bytes]] = {}
        self.asked: list[Asked] = []
        self.released = threading.Event()

    def at(self, path: str, answer: Answer, content: bytes = CONTENT) -> str:
        """Serve ``content`` in that manner; returns the address."""
        self.answers[path] = answer, content
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is none of our business."""

    def remote(self, *mirrors: str, digest: str = "", name: str = "file.bin") -> Remote:
        return Remote(name=name, mirrors=mirrors, digest=digest)


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def plain(handler: Handler, content: bytes) -> None:
    handler.wfile.write(handler.start(content))


def ignoring_ranges(handler: Handler, content: bytes) -> None:
    handler.wfile.write(handler.start(content, ranges=False))


def tampering(handler: Handler, content: bytes) -> None:
    body = bytearray(handler.start(content))
    body[len(body) // 2] ^= 1
    handler.wfile.write(body)


def cut_after(size: int) -> Answer:
    """Promises everything, sends ``size`` bytes of what was asked for and hangs up."""

    def answer(handler: Handler, content: bytes) -> None:
        handler.wfile.write(handler.start(content)[:size])

    return answer


def stalling_after(size: int) -> Answer:
    """Sends ``size`` bytes and then nothing, without hanging up."""

    def answer(handler: Handler, content: bytes) -> None:
        handler.wfile.write(handler.start(content)[:size])
        handler.server.released.wait(20)

    return answer


def throttled(pause_s: float, chunk: int = 4096) -> Answer:
    """Sends ``chunk`` bytes at a time."""

    def answer(handler: Handler, content: bytes) -> None:
        body = handler.start(content)
        for start in range(0, len(body), chunk):
            handler.wfile.write(body[start : start + chunk])
            time.sleep(pause_s)

    return answer


def status(code: int) -> Answer:
    def answer(handler: Handler, content: bytes) -> None:
        handler.send_error(code)

    return answer


def first(answer: Answer, then: Answer) -> Answer:
    """One manner for the first question, another for all later ones."""
    left = [answer]

    def either(handler: Handler, content: bytes) -> None:
        (left.pop() if left else then)(handler, content)

    return either


def redirect(path: str, code: int = 302) -> Answer:
    def answer(handler: Handler, content: bytes) -> None:
        handler.send_response(code)
        handler.send_header("Location", path)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def without_length(handler: Handler, content: bytes) -> None:
    """Ends where it hangs up."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(content)


def wrong_part(handler: Handler, content: bytes) -> None:
    """Answers every question about a part with the file's beginning, and calls it a part."""
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes 0-{len(content) - 1}/{len(content)}")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def hanging_up(handler: Handler, content: bytes) -> None:
    """Says nothing at all."""
    handler.close_connection = True


def fetched(remote: Remote, folder: Path) -> bytes:
    return download(remote, folder, timeout_s=TIMEOUT_S).read_bytes()


def refused(remote: Remote, folder: Path) -> str:
    """The error of a download that leaves no file."""
    with pytest.raises(OSError, match="no mirror has the right file") as caught:
        fetched(remote, folder)
    assert not (folder / remote.name).exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)
