"""The batch service as the gateway asks it, for a tenant and by an interface. Its refusals become `ApiError`."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from gateway.batches.token import BatchToken
from gateway.openai.errors import batch_errors, errors
from shared.messages.batches.batches import (
    INTERFACE_HEADER,
    KEY_HEADER,
    TENANT_HEADER,
    TOKEN_HEADER,
    BatchInterface,
    BatchPage,
    BatchRecord,
    BatchRefusal,
    FilePage,
    NewBatch,
    StoredFile,
)

ANSWER_TIMEOUT_S = 15.0  # of calls that move no file
CONNECT_TIMEOUT_S = 5.0
WRONG_TOKEN = "wrong_token"  # noqa: S105 (a code)

T = TypeVar("T", bound=msgspec.Struct)

_WAYS = {".": "%252E", "..": "%252E%252E"}
"""What an address takes for a way to another place, and not for a name, with what it takes for a name."""


class BatchService:
    """For one process and one interface; its connections are kept. Needs a running loop."""

    def __init__(self, url: str, token: BatchToken, interface: BatchInterface = "openai") -> None:
        self._url = url
        self._token = token
        self._interface = interface
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)

    async def close(self) -> None:
        """Give its connections up."""
        await self._session.close()

    async def take_file(self, tenant: str, content_type: str, form: AsyncIterable[bytes]) -> StoredFile:
        """A form with a file, as it comes from the client."""
        return await self._give("/files", form, tenant, {"content-type": content_type}, StoredFile)

    async def files(self, tenant: str, query: Mapping[str, str]) -> FilePage:
        """A page of them."""
        return await self._ask("GET", "/files", tenant, FilePage, query=query)

    async def file(self, tenant: str, file: str) -> StoredFile:
        """One."""
        return await self._ask("GET", f"/files/{_named(file)}", tenant, StoredFile)

    async def remove_file(self, tenant: str, file: str) -> StoredFile:
        """The one that is no more."""
        return await self._ask("DELETE", f"/files/{_named(file)}", tenant, StoredFile)

    @asynccontextmanager
    async def content(self, tenant: str, file: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Its bytes, to be read from the answer."""
        url = f"{self._url}/files/{_named(file)}/content"
        try:
            async with self._session.get(url, headers=await self._headers(tenant)) as response:
                if response.status != 200:
                    await self._checked(response)
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable() from error

    async def make_batch(self, tenant: str, asked: NewBatch) -> BatchRecord:
        """A new one."""
        return await self._ask("POST", "/batches", tenant, BatchRecord, body=msgspec.msgpack.encode(asked))

    async def make_batch_of(self, tenant: str, key_id: str, requests: AsyncIterable[bytes]) -> BatchRecord:
        """A new one of requests that come with it, as their client sends them."""
        return await self._give("/batches/requests", requests, tenant, {KEY_HEADER: key_id}, BatchRecord)

    async def remove_batch(self, tenant: str, batch: str) -> BatchRecord:
        """The one that is no more, nor are its results."""
        return await self._ask("DELETE", f"/batches/{_named(batch)}", tenant, BatchRecord)

    async def batches(self, tenant: str, query: Mapping[str, str]) -> BatchPage:
        """A page of them."""
        return await self._ask("GET", "/batches", tenant, BatchPage, query=query)

    async def batch(self, tenant: str, batch: str) -> BatchRecord:
        """One."""
        return await self._ask("GET", f"/batches/{_named(batch)}", tenant, BatchRecord)

    async def cancel_batch(self, tenant: str, batch: str) -> BatchRecord:
        """One that is to end."""
        return await self._ask("POST", f"/batches/{_named(batch)}/cancel", tenant, BatchRecord)

    async def _give(
        self, path: str, body: AsyncIterable[bytes], tenant: str, headers: Mapping[str, str], kind: type[T]
    ) -> T:
        """Send what a client sends, for as long as that takes."""
        all_headers = {**await self._headers(tenant), **headers}
        try:
            async with self._session.post(self._url + path, data=body, headers=all_headers) as response:
                return _decoded(await self._checked(response), kind)
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable() from error

    async def _ask(
        self,
        method: str,
        path: str,
        tenant: str,
        kind: type[T],
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> T:
        try:
            async with self._session.request(
                method,
                self._url + path,
                params=query,
                data=body,
                headers=await self._headers(tenant),
                timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            ) as response:
                return _decoded(await self._checked(response), kind)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable() from error

    async def _checked(self, response: aiohttp.ClientResponse) -> bytes:
        """The body of an answer; `ApiError` for a refusal. Of a secret that is another one now, the next call knows."""
        data = await response.read()
        if response.status == 200:
            return data
        try:
            refusal = msgspec.msgpack.decode(data, type=BatchRefusal)
        except msgspec.MsgspecError as error:
            raise errors.internal() from error
        if refusal.code == WRONG_TOKEN:
            await self._token.renew()
            raise _unreachable()
        raise batch_errors.of_batch_service(response.status, refusal.code, refusal.message, refusal.param)

    async def _headers(self, tenant: str) -> dict[str, str]:
        token = await self._token.current()
        if token is None:
            raise _unreachable()
        return {TOKEN_HEADER: token, TENANT_HEADER: tenant, INTERFACE_HEADER: self._interface}


def _named(name: str) -> str:
    """A client's word as one part of an address."""
    return _WAYS.get(name) or quote(name, safe="")


def _decoded(data: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(data, type=kind)


def _unreachable() -> errors.ApiError:
    return errors.no_endpoints("the batch service cannot be reached")
