"""A hub of models on this machine: what the Hugging Face hub answers, as far as its package asks."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "acme/tiny"
TOKEN = "hf_secret"
_INFO = re.compile(r"/api/models/([^/]+/[^/]+)/revision/([^?]+)")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Hub:
    """One repository with one commit, at which its branch `main` stands."""

    files: dict[str, bytes]
    large: set[str] = field(default_factory=set)
    """Files that do not lie in git itself: they have a sha256."""
    is_gated: bool = False
    """Its files want a token."""
    breaks_off_after: int | None = None
    """Bytes of an answer after which the connection is closed."""
    committed: dict[str, bytes] | None = None
    """What its commit says, where files have changed since."""
    asked: list[str] = field(default_factory=list)
    """Paths of files that were sent, with the range where a part was asked for."""
    url: str = ""

    def info(self) -> Mapping[str, object]:
        siblings = [self._sibling(path, content) for path, content in (self.committed or self.files).items()]
        return {"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}

    def _sibling(self, path: str, content: bytes) -> dict[str, object]:
        told: dict[str, object] = {"rfilename": path, "size": len(content), "blobId": git_blob(content)}
        if path in self.large:
            told["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return told


def git_blob(content: bytes) -> str:
    """Git's name of a content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self, *, has_body: bool) -> None:
        if info := _INFO.fullmatch(self.path.partition("?")[0]):
            self._tell_info(*info.groups())
        elif found := _FILE.fullmatch(self.path):
            self._send_file(*found.groups(), has_body=has_body)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "EntryNotFound")

    def _tell_info(self, repository: str, revision: str) -> None:
        if repository != REPOSITORY:
            self._refuse(HTTPStatus.NOT_FOUND, "RepoNotFound")
        elif revision not in (COMMIT, "main"):
            self._refuse(HTTPStatus.NOT_FOUND, "RevisionNotFound")
        else:
            self._send(json.dumps(self.hub.info()).encode(), {"Content-Type": "application/json"})

    def _send_file(self, repository: str, commit: str, path: str, *, has_body: bool) -> None:
        if self.hub.is_gated and self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._refuse(HTTPStatus.FORBIDDEN, "GatedRepo")
            return
        assert (repository, commit) == (REPOSITORY, COMMIT)
        content = self.hub.files[path]
        etag = hashlib.sha256(content).hexdigest() if path in self.hub.large else git_blob(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(content))}
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if has_body:
            self.hub.asked.append(f"{path} from {start}" if start else path)
        status = HTTPStatus.OK
        if start:
            status = HTTPStatus.PARTIAL_CONTENT
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(content[start:], headers, status, has_body=has_body)

    def _send(
        self,
        body: bytes,
        headers: Mapping[str, str],
        status: HTTPStatus = HTTPStatus.OK,
        *,
        has_body: bool = True,
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body and self.hub.breaks_off_after is not None and len(body) > self.hub.breaks_off_after:
            self.wfile.write(body[: self.hub.breaks_off_after])
            self.close_connection = True
        elif has_body:
            self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, code: str) -> None:
        self._send(b"{}", {"X-Error-Code": code}, status, has_body=self.command == "GET")


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Listening inside of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
