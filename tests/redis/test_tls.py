"""Redis over TLS: who the other end is gets checked, and so do we where that is asked for. The server is a proxy."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.bus.bus import RedisUnreachableError, check_reachable, connect
from shared.service.background.tasks import cancel_all
from tests.redis.own_server import HOST, OwnServer

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="openssl, which makes the certificates, is not installed"
    ),
]

CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class Certificates:
    """An authority and one certificate for 127.0.0.1, which a server or a client may show."""

    authority: Path
    cert: Path
    key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl(*new, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
    own = (
        "-CA",
        "ca.crt",
        "-CAkey",
        "ca.key",
        "-addext",
        f"subjectAltName=IP:{HOST}",
        "-addext",
        "basicConstraints=CA:FALSE",
    )
    openssl(*new, "-subj", "/CN=redis", *own, "-keyout", "tls.key", "-out", "tls.crt")
    return Certificates(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")


@asynccontextmanager
async def tls_in_front_of(server: OwnServer, certificates: Certificates, *, asks_clients: bool) -> AsyncIterator[int]:
    """The port of a proxy that speaks TLS, and plainly with the server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority))
    context.load_cert_chain(certificates.cert, certificates.key)
    context.verify_mode = ssl.CERT_REQUIRED if asks_clients else ssl.CERT_NONE
    pipes: set[asyncio.Task[None]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(HOST, server.port)
        pipes.add(asyncio.create_task(pipe(reader, inner_writer)))
        pipes.add(asyncio.create_task(pipe(inner_reader, writer)))

    proxy = await asyncio.start_server(serve, HOST, 0, ssl=context)
    try:
        yield proxy.sockets[0].getsockname()[1]
    finally:
        proxy.close()
        await cancel_all(pipes)


async def reach(url: str) -> None:
    async with connect(url) as redis:
        await check_reachable(redis)


async def test_a_server_is_known_by_its_certificate(own_server: OwnServer, certificates: Certificates) -> None:
    async with tls_in_front_of(own_server, certificates, asks_clients=False) as port:
        authority = f"ssl_ca_certs={certificates.authority}"
        await reach(f"rediss://{HOST}:{port}/0?{authority}")
        with pytest.raises(RedisUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await reach(f"rediss://{HOST}:{port}/0")
        with pytest.raises(RedisUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await reach(f"rediss://localhost:{port}/0?{authority}")
        await reach(f"rediss://localhost:{port}/0?{authority}&ssl_check_hostname=false")
        with pytest.raises(RedisUnreachableError):
            await reach(f"redis://{HOST}:{port}/0")


async def test_of_several_servers_the_master_is_asked_over_tls(
    own_server: OwnServer, certificates: Certificates
) -> None:
    async with tls_in_front_of(own_server, certificates, asks_clients=False) as port:
        await reach(f"rediss://{HOST}:1,{HOST}:{port}/0?ssl_ca_certs={certificates.authority}")


async def test_a_client_is_known_by_its_certificate(own_server: OwnServer, certificates: Certificates) -> None:
    async with tls_in_front_of(own_server, certificates, asks_clients=True) as port:
        url = f"rediss://{HOST}:{port}/0?ssl_ca_certs={certificates.authority}"
        with pytest.raises(RedisUnreachableError):
            await reach(url)
        await reach(f"{url}&ssl_certfile={certificates.cert}&ssl_keyfile={certificates.key}")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.crt"
    with pytest.raises(RedisUnreachableError, match=f"^TLS to rediss://r:6379/0: {missing} cannot be read$"):
        connect(f"rediss://:secret@r?ssl_ca_certs={missing}")
