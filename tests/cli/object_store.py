"""An object storage on this machine: what S3 answers to who lists and reads, and STS to who asks for a role."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "models"
ACCESS_KEY = "AKIDOFTHETESTS"
SECRET = "a-secret-that-no-output-may-hold"
PAGE = 1000
"""Objects of a listing's page, as S3 has it."""
HOLD_S = 60.0
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/[^/]+/([^/]+)/s3/aws4_request, .*Signature=[0-9a-f]{64}")
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


@dataclass
class ObjectStore:
    """One bucket."""

    objects: dict[str, bytes]
    versions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Of keys that have some, by their ids, the latest last."""
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    """By key, what else is told of an object; "ETag" takes the place of its MD5 digest."""
    part_bytes: dict[str, int] = field(default_factory=dict)
    """By key, of the parts that an object was uploaded in, where the storage still knows."""
    access_keys: set[str] = field(default_factory=lambda: {ACCESS_KEY})
    is_expired: bool = False
    """Credentials were good yesterday."""
    is_denied: bool = False
    """Credentials are good, and allow nothing."""
    num_cuts: int = 0
    """Answers that are still to break off in their middle."""
    changes: dict[str, bytes] = field(default_factory=dict)
    """What objects become, once."""
    change_when: str = "read"
    """When they do: with the first read of one, or when they have been `listed`."""
    holds_from: int | None = None
    """Parts that begin there or behind are not sent before `released`."""
    released: threading.Event = field(default_factory=threading.Event)
    ignores_match: bool = False
    """It does not know conditions."""
    is_sizeless: bool = False
    """It tells no sizes of objects, as what only looks like S3 may not."""
    sends_away: bool = False
    """It answers whatever is asked with an address that is its own."""
    asked: list[str] = field(default_factory=list)
    """Reads of objects, with the range where a part was asked for, and others by their names."""
    regions: set[str] = field(default_factory=set)
    """That were signed for."""
    tokens: list[str] = field(default_factory=list)
    """Of service accounts that asked for a role."""
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def content(self, key: str, version: str = "") -> bytes | None:
        versions = self.versions.get(key)
        if versions is None:
            return self.objects.get(key) if not version else None
        return versions.get(version or list(versions)[-1])

    def etag(self, key: str, content: bytes) -> str:
        told = self.headers.get(key, {}).get("ETag")
        return told or _md5(content)

    def change(self, when: str) -> None:
        if when == self.change_when:
            self.objects |= self.changes

    def is_cut(self) -> bool:
        """Whether this answer breaks off."""
        with self.lock:
            self.num_cuts -= 1
            return self.num_cuts >= 0


@lru_cache(maxsize=8)
def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    store: ObjectStore
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        assert asked["Action"] == ["AssumeRoleWithWebIdentity"]
        self.store.tokens += asked["WebIdentityToken"]
        until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._send_xml(
            "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
            f"<AccessKeyId>{ACCESS_KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
            f"<SessionToken>session</SessionToken><Expiration>{until}</Expiration>"
            "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self) -> None:
        if self.store.sends_away:
            self._send(b"", {"Location": self.store.url}, HTTPStatus.TEMPORARY_REDIRECT)
            return
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        if refusal := self._refusal(bucket):
            self._refuse(*refusal)
        elif key:
            self._send_object(key, query.get("versionId", ""))
        else:
            assert query["list-type"] == "2"
            self._list(query.get("prefix", ""), query.get("continuation-token", ""))

    def _refusal(self, bucket: str) -> tuple[HTTPStatus, str] | None:
        signed = _CREDENTIAL.fullmatch(self.headers.get("Authorization", ""))
        if signed is None:
            return HTTPStatus.FORBIDDEN, "AccessDenied"
        self.store.regions.add(signed[2])
        if signed[1] not in self.store.access_keys:
            return HTTPStatus.FORBIDDEN, "InvalidAccessKeyId"
        if self.store.is_expired:
            return HTTPStatus.BAD_REQUEST, "ExpiredToken"
        if self.store.is_denied:
            return HTTPStatus.FORBIDDEN, "AccessDenied"
        return (HTTPStatus.NOT_FOUND, "NoSuchBucket") if bucket != BUCKET else None

    def _list(self, prefix: str, after: str) -> None:
        self.store.asked.append("list")
        keys = sorted(key for key in self.store.objects if key.startswith(prefix) and key > after)
        page = keys[:PAGE]
        contents = "".join(self._listed(key) for key in page)
        self.store.change("listed")
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(keys) > PAGE else ""
        self._send_xml(
            f'<ListBucketResult xmlns="{_NAMESPACE}"><Name>{BUCKET}</Name><KeyCount>{len(page)}</KeyCount>'
            f"<EncodingType>url</EncodingType><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}{contents}"
            "</ListBucketResult>"
        )

    def _listed(self, key: str) -> str:
        content = self.store.objects[key]
        told = self.store.headers.get(key, {})
        num_bytes = told.get("listed-size", len(content))
        etag = escape(f'"{self.store.etag(key, content)}"')
        size = "" if self.store.is_sizeless else f"<Size>{num_bytes}</Size>"
        return f"<Contents><Key>{quote(key)}</Key>{size}<ETag>{etag}</ETag></Contents>"

    def _send_object(self, key: str, version: str) -> None:
        content = self.store.content(key, version)
        asked_range = self.headers.get("Range", "")
        words = ("head" if self.command == "HEAD" else "", key, asked_range.removeprefix("bytes="))
        self.store.asked.append(" ".join(part for part in words if part))
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchVersion" if version else "NoSuchKey")
            return
        etag = self.store.etag(key, content)
        match = self.headers.get("If-Match")
        if match is not None and match.strip('"') != etag and not self.store.ignores_match:
            self._refuse(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
            return
        told = {name: value for name, value in self.store.headers.get(key, {}).items() if name.startswith("x-amz-")}
        headers = {"ETag": f'"{etag}"', "Accept-Ranges": "bytes"} | (told if not asked_range else {})
        if key in self.store.versions:
            headers["x-amz-version-id"] = version or list(self.store.versions[key])[-1]
        if self.command == "GET" and asked_range != "bytes=0-0":
            self.store.change("read")
        if self.command == "HEAD" and (number := self._part_number()) and key in self.store.part_bytes:
            part_bytes = self.store.part_bytes[key]
            headers["x-amz-mp-parts-count"] = str(-(-len(content) // part_bytes))
            content = content[(number - 1) * part_bytes :][:part_bytes]
        self._send_range(content, asked_range, headers)

    def _part_number(self) -> int:
        return int(parse_qs(urlsplit(self.path).query).get("partNumber", ["0"])[0])

    def _send_range(self, content: bytes, asked: str, headers: dict[str, str]) -> None:
        if (part := _RANGE.fullmatch(asked)) is None:
            self._send(content, headers, HTTPStatus.OK)
        elif int(part[1]) >= len(content):
            self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "InvalidRange")
        else:
            start, end = int(part[1]), min(int(part[2]) + 1, len(content))
            if self.store.holds_from is not None and start >= self.store.holds_from:
                self.store.released.wait(HOLD_S)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
            self._send(content[start:end], headers, HTTPStatus.PARTIAL_CONTENT)

    def _send_xml(self, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(
            f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"}, status
        )

    def _send(self, body: bytes, headers: Mapping[str, str], status: HTTPStatus) -> None:
        self.send_response(status)
        is_chunked = self.store.is_sizeless and "Accept-Ranges" in headers and self.command == "GET"
        size = {"Transfer-Encoding": "chunked"} if is_chunked else {"Content-Length": str(len(body))}
        for name, value in {**headers, **size}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        is_object = "Accept-Ranges" in headers and len(body) > 1
        if is_object and self.store.is_cut():
            body = body[: len(body) // 2]
            self.close_connection = True
        self.wfile.write(body if not is_chunked else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    def _refuse(self, status: HTTPStatus, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>of {code}</Message></Error>"
        self._send_xml(text if self.command != "HEAD" else "", status)


@contextmanager
def serving(store: ObjectStore) -> Iterator[ObjectStore]:
    """Listening inside of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
