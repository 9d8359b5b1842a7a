"""A web server on this machine that can make the mistakes of web servers, and small named corpora on it."""

import gzip
import hashlib
import io
import random
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import msgspec

from data.download import Remote
from data.named import NamedCorpus

CONTENT = random.Random(6).randbytes(100_001)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
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
        return Remote(name=name, mirrors=mirrors, hash=digest)


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


def status(code: int) -> Answer:
    def answer(handler: Handler, content: bytes) -> None:
        handler.send_error(code)

    return answer


Texts = dict[tuple[str, str], bytes]
"""The texts by (download, member)."""


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def published(members: dict[str, bytes], name: str) -> bytes:
    """A download of that name with these texts in it."""
    if "" in members:
        return gzip.compress(members[""]) if name.endswith(".gz") else members[""]
    packed = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def stand_in(corpus: NamedCorpus, server: Server, texts: Texts) -> NamedCorpus:
    """``corpus`` with downloads served by us, made of ``texts``."""
    files = dict(corpus.files)
    for name in {name for name, _ in texts}:
        content = published({member: text for (file, member), text in texts.items() if file == name}, name)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}" if files[name].hash else ""
        files[name] = Remote(hash=digest, mirrors=(server.at(f"/{name}", plain, content),))
    return msgspec.structs.replace(corpus, files=files)
