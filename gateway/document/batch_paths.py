"""Files and batches in the OpenAPI document."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from gateway.document.operations import KEYED, REFUSED, json_of, operation, takes
from gateway.endpoints.stored.batches import BATCHES_A_PAGE, MAX_BATCHES_A_PAGE
from gateway.endpoints.stored.files import MAX_FILES_A_PAGE
from gateway.openai.batches import BatchAnswer, BatchList, FileAnswer, FileList, FileRemoved
from shared.messages.batches.batches import MAX_KEEP_S, MIN_KEEP_S, FilePurpose

BATCH_ANSWERS: list[type[msgspec.Struct]] = [FileAnswer, FileList, FileRemoved, BatchAnswer, BatchList]

NO_SERVICE = {503: "The batch service cannot be reached, or its disk is full"}
BUSY = {429: "Too many files are on their way, or too many batches have not ended"} | NO_SERVICE
GONE = {404: "There is none of that name"}
_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"enum": ["batch", "user_data"]},
        "expires_after[anchor]": {"enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": MIN_KEEP_S, "maximum": MAX_KEEP_S},
    },
}


def batch_paths() -> dict[str, Any]:
    """By path."""
    refused = {status: REFUSED[status] for status in (400, 408, 413, 415)}
    full = {403: "The tenant's files take all the room that they may"}
    upload = operation("Send a file", json_of("FileAnswer"), KEYED | refused | full, BUSY)
    upload |= {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
    made = operation(
        "Begin a batch",
        json_of("BatchAnswer"),
        KEYED | refused | {403: "This key may not ask for answers within that window"},
        BUSY,
    )
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    order = [_choice("order", ["asc", "desc"]), _choice("purpose", list(get_args(FilePurpose)))]
    cancelled = KEYED | GONE | {409: "The batch has ended, or is about to"}
    removed = KEYED | GONE | {409: "A batch that has not ended reads the file"}
    return {
        "/v1/files": {
            "post": upload,
            "get": _list("List files", "FileList", MAX_FILES_A_PAGE, MAX_FILES_A_PAGE, order),
        },
        "/v1/files/{file}": {
            "get": one_of("file", operation("Show a file", json_of("FileAnswer"), KEYED | GONE, NO_SERVICE)),
            "delete": one_of("file", operation("Remove a file", json_of("FileRemoved"), removed, NO_SERVICE)),
        },
        "/v1/files/{file}/content": {
            "get": one_of("file", operation("Read a file", content, KEYED | GONE, BUSY)),
        },
        "/v1/batches": {
            "post": made | takes("BatchRequest"),
            "get": _list("List batches", "BatchList", MAX_BATCHES_A_PAGE, BATCHES_A_PAGE, []),
        },
        "/v1/batches/{batch}": {
            "get": one_of("batch", operation("Show a batch", json_of("BatchAnswer"), KEYED | GONE, NO_SERVICE)),
        },
        "/v1/batches/{batch}/cancel": {
            "post": one_of("batch", operation("Cancel a batch", json_of("BatchAnswer"), cancelled, NO_SERVICE)),
        },
    }


def one_of(what: str, asked: dict[str, Any]) -> dict[str, Any]:
    """An operation on the one that its path names."""
    name = {"name": what, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return asked | {"parameters": [name]}


def _list(summary: str, answer: str, most: int, usual: int, more: list[dict[str, Any]]) -> dict[str, Any]:
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": usual}
    parameters = [query("limit", limit), query("after", {"type": "string", "maxLength": 64}), *more]
    refused = KEYED | {400: REFUSED[400]}
    return operation(summary, json_of(answer), refused, NO_SERVICE) | {"parameters": parameters}


def _choice(name: str, values: list[str]) -> dict[str, Any]:
    return query(name, {"enum": values})


def query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter of a query."""
    return {"name": name, "in": "query", "schema": schema}
