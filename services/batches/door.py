"""Where gateways ask the service: files in and out, batches made, shown and cancelled. In MessagePack, over HTTP.

Every call has the secret of both (`TOKEN_HEADER`) and the tenant; what belongs to another tenant is not there.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from services.batches import transitions
from services.batches.refused import RefusedError, no_batch, no_file, no_storage, no_such_place
from services.batches.runner import BatchRunner
from services.batches.store.batch_store import BatchStore
from services.batches.store.file_store import FileStore
from services.batches.store.folder import BatchFolder, sync_file
from services.batches.store.ids import new_id
from services.batches.upload import read_form
from shared.config.batches import BatchOptions
from shared.messages.batches import (
    TENANT_HEADER,
    TOKEN_HEADER,
    BatchRecord,
    FilePurpose,
    NewBatch,
    StoredFile,
)

MAX_OPEN_BATCHES = 64  # of a tenant, at a time
MAX_BODY_BYTES = 64 << 10  # of what asks for a batch: metadata is bounded by the gateway

_log = structlog.get_logger()
_new_batch = msgspec.msgpack.Decoder(NewBatch)


class BatchDoor:
    """The routes, and what they do."""

    def __init__(
        self,
        options: BatchOptions,
        folder: BatchFolder,
        files: FileStore,
        batches: BatchStore,
        runner: BatchRunner,
        token: str,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._folder = folder
        self._files = files
        self._batches = batches
        self._runner = runner
        self._token = token.encode()
        self._clock = clock
        self._coming: Counter[str] = Counter()  # bytes that uploads may still bring, by tenant

    def app(self) -> web.Application:
        """An application with the routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes(
            [
                web.post("/files", self._take_file),
                web.get("/files", self._list_files),
                web.get("/files/{file}", self._show_file),
                web.get("/files/{file}/content", self._give_file),
                web.delete("/files/{file}", self._remove_file),
                web.post("/batches", self._make_batch),
                web.get("/batches", self._list_batches),
                web.get("/batches/{batch}", self._show_batch),
                web.post("/batches/{batch}/cancel", self._cancel_batch),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith(("/files", "/batches")):
            return await handler(request)  # health and metrics
        try:
            given = request.headers.get(TOKEN_HEADER, "").encode(errors="surrogateescape")
            if not hmac.compare_digest(given, self._token):
                raise RefusedError(403, "wrong_token", "the gateway does not know the service's secret")
            return await handler(request)
        except RefusedError as error:
            refused = error
        except OSError as error:
            _log.error("disk_failed", path=request.path, problem=str(error))
            refused = no_storage()
        return _packed(refused.refusal, refused.status)

    # --- files ----------------------------------------------------------------------------------------------------

    async def _take_file(self, request: web.Request) -> web.Response:
        tenant = request.headers[TENANT_HEADER]
        self._check_room(tenant)
        left = self._options.max_tenant_bytes - self._files.num_bytes(tenant) - self._coming[tenant]
        most = min(self._options.max_file_bytes, left)
        file = new_id("file-", self._clock())
        path = self._folder.uploads / file
        self._coming[tenant] += most
        try:
            form = await read_form(request, path, most)
            now = int(self._clock())
            record = StoredFile(
                id=file,
                tenant=tenant,
                filename=form.filename,
                purpose=form.purpose,
                num_bytes=form.num_bytes,
                created_s=now,
                expires_s=None if form.keep_s is None else now + form.keep_s,
            )
            await asyncio.to_thread(sync_file, path)
            self._files.add(record, path)
        finally:
            path.unlink(missing_ok=True)
            self._coming[tenant] -= most
        return _packed(record)

    def _check_room(self, tenant: str) -> None:
        room = self._options.max_tenant_bytes - self._files.num_bytes(tenant) - self._coming[tenant]
        if room <= 0 or self._files.is_full(tenant):
            raise RefusedError(
                403, "storage_limit_exceeded", "this tenant's files take all the room that they may: delete some"
            )

    async def _list_files(self, request: web.Request) -> web.Response:
        query = request.query
        purpose: FilePurpose | None = msgspec.convert(query["purpose"], FilePurpose) if "purpose" in query else None
        page = self._files.page(
            request.headers[TENANT_HEADER],
            after=query.get("after"),
            limit=int(query["limit"]),
            newest_first=query.get("order") != "asc",
            purpose=purpose,
        )
        if page is None:
            raise no_such_place(query["after"])
        return _packed(page)

    async def _show_file(self, request: web.Request) -> web.Response:
        return _packed(self._file(request))

    async def _give_file(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(self._files.path(self._file(request).id))

    async def _remove_file(self, request: web.Request) -> web.Response:
        record = self._file(request)
        if any(one.asked.input_file_id == record.id and not one.has_ended for one in self._batches.all()):
            raise RefusedError(409, "file_in_use", "a batch that has not ended reads this file; cancel it first")
        self._files.remove(record.id)
        return _packed(record)

    # --- batches --------------------------------------------------------------------------------------------------

    async def _make_batch(self, request: web.Request) -> web.Response:
        tenant = request.headers[TENANT_HEADER]
        asked = _new_batch.decode(await request.read())
        file = self._files.get(asked.input_file_id)
        if file is None or file.tenant != tenant:
            raise RefusedError(400, "file_not_found", f"there is no file {asked.input_file_id[:64]!r}", "input_file_id")
        if file.purpose != "batch":
            raise RefusedError(400, "invalid_value", "the file's purpose is not 'batch'", "input_file_id")
        if self._batches.num_open(tenant) >= MAX_OPEN_BATCHES:
            raise RefusedError(
                429, "too_many_batches", f"this tenant has {MAX_OPEN_BATCHES} batches that have not ended"
            )
        now = self._clock()
        record = transitions.created(new_id("batch_", now), tenant, asked, now)
        self._batches.save(record)
        self._runner.begin(record)
        return _packed(record)

    async def _list_batches(self, request: web.Request) -> web.Response:
        after = request.query.get("after")
        page = self._batches.page(request.headers[TENANT_HEADER], after=after, limit=int(request.query["limit"]))
        if page is None:
            raise no_such_place(after or "")
        shown = [self._runner.as_it_stands(one) for one in page.batches]
        return _packed(msgspec.structs.replace(page, batches=shown))

    async def _show_batch(self, request: web.Request) -> web.Response:
        return _packed(self._runner.as_it_stands(self._batch(request)))

    async def _cancel_batch(self, request: web.Request) -> web.Response:
        record = self._batch(request)
        if record.has_ended or record.finalizing_s is not None:
            raise RefusedError(409, "batch_has_ended", f"the batch is {record.status}, and cannot be cancelled")
        return _packed(record if record.cancelling_s is not None else self._runner.cancel(record))

    def _file(self, request: web.Request) -> StoredFile:
        record = self._files.get(request.match_info["file"])
        if record is None or record.tenant != request.headers[TENANT_HEADER]:
            raise no_file(request.match_info["file"])
        return record

    def _batch(self, request: web.Request) -> BatchRecord:
        record = self._batches.get(request.match_info["batch"])
        if record is None or record.tenant != request.headers[TENANT_HEADER]:
            raise no_batch(request.match_info["batch"])
        return record


def _packed(record: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.msgpack.encode(record), content_type="application/msgpack")
