"""A Hugging Face hub of our own, on this machine: what uploading and downloading a model asks for."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHA = "a" * 40
"""The only commit that there ever is."""


class Handler(BaseHTTPRequestHandler):
    server: "HubServer"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        repo = "/".join(self.path.split("/")[3:5])
        files = self.server.repos
        if self.path == "/api/repos/create":
            wanted = json.loads(body)
            name = (
                f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
            )
            if self.headers.get("Authorization") != f"Bearer {self.server.token}":
                return self._send(401, {"error": "Invalid username or password."})
            files.setdefault(name, {})
            is_private = wanted.get("private") or wanted.get("visibility") == "private"
            self.server.private[name] = bool(is_private)
            return self._send(200, {"url": f"{self.server.address}/{name}"})
        if "/preupload/" in self.path:
            wanted = [entry["path"] for entry in json.loads(body)["files"]]
            regular = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in wanted]
            return self._send(200, {"files": regular})
        if "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    files[repo][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            url = f"{self.server.address}/{repo}/commit/{SHA}"
            return self._send(200, {"success": True, "commitOid": SHA, "commitUrl": url})
        if self.path == "/api/validate-yaml":
            return self._send(200, {"errors": [], "warnings": []})
        self._send(404, {"error": f"no POST {self.path}"})

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0].strip("/").split("/")
        if path[:2] == ["api", "models"]:
            repo = "/".join(path[2:4])
            if repo not in self.server.repos:
                return self._send(404, {"error": "Repository not found"}, **{"X-Error-Code": "RepoNotFound"})
            siblings = [{"rfilename": name} for name in self.server.repos[repo]]
            if "tree" in path:
                entries = [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(content),
                        "oid": hashlib.sha1(content).hexdigest(),
                    }
                    for name, content in self.server.repos[repo].items()
                ]
                return self._send(200, entries)
            return self._send(200, {"id": repo, "modelId": repo, "sha": SHA, "siblings": siblings})
        if len(path) >= 5 and path[2] == "resolve":
            content = self.server.repos.get("/".join(path[:2]), {}).get("/".join(path[4:]))
            if content is None:
                return self._send(404, {"error": "Entry not found"}, **{"X-Error-Code": "EntryNotFound"})
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            return self._send(200, content, **{"X-Repo-Commit": SHA, "ETag": etag})
        self._send(404, {"error": f"no {self.command} {self.path}"})

    do_HEAD = do_GET

    def _chunks(self) -> bytes:
        """Read a body that comes in chunks, without a length."""
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, content: Any, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class HubServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, token: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.token = token
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving_hub(token: str) -> Iterator[HubServer]:
    with HubServer(token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
