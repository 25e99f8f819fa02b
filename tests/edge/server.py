"""A gateway on a real socket, in a thread of its own, for clients that block; nodes in memory answer at once."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from gateway.app import build_app
from gateway.http.clients_port import ClientsRunner
from gateway.http.context import GatewayContext
from gateway.http.leaving import CUT_S
from gateway.inflight.dispatcher import Dispatcher
from gateway.models.models import load_models
from services.batches.serving import serving as batch_service
from shared.bus.bus import connect
from shared.config.config import ADMIN_SERVICES, ClusterConfig
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from shared.messages.requests.token_logprob import TokenLogprob
from shared.service.admin.admin import listen
from tests.gateway.memory_queue import MemoryQueue
from tests.gateway.tiny import write_model
from tests.ports import free_port_range

MAX_MODEL_LEN = 64
LONG_MODEL_LEN = 2048
MAX_BODY_BYTES = 1 << 18
START_TIMEOUT_S = 30.0
NO_REDIS = "redis://127.0.0.1:1/0"  # nobody has to read the secret of the batch service there
EMBEDDING = struct.pack("<4f", 1.0, -2.0, 3.0, 0.5)
LOGITS = struct.pack("<2f", -1.0, 0.5)
CALL = b'Well: <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def answering(payload: Payload) -> list[Chunk]:
    """A chunk a choice, of as many tokens as were asked for; every choice ends by its length, unless it has to call.

    Or an embedding of four numbers, or the logits of no and yes.
    """
    sampling = payload.sampling
    if sampling.is_embedding:
        row = LOGITS if payload.model == "judge" else EMBEDDING
        return [Chunk(payload.request_id, payload.attempt, 0, [], "stop", is_last=True, embedding=row)]
    token_ids = [97 + place % 26 for place in range(sampling.max_tokens)]
    finish_reason = "length"
    if sampling.constraint is not None and '"<tool_call>"' in sampling.constraint.text:
        token_ids = list(CALL[: sampling.max_tokens])
        finish_reason = "stop" if len(CALL) < sampling.max_tokens else "length"
    scores = _scores(token_ids, sampling.num_logprobs)
    return [
        Chunk(
            payload.request_id,
            payload.attempt,
            0,
            token_ids,
            finish_reason,
            choice=choice,
            logprobs=scores,
            is_last=choice == sampling.num_choices - 1,
        )
        for choice in range(sampling.num_choices)
    ]


def _scores(token_ids: Sequence[int], num_logprobs: int | None) -> list[TokenLogprob]:
    if num_logprobs is None:
        return []
    top = [(97 + place, -0.5 - place) for place in range(num_logprobs)]
    return [TokenLogprob(-1.0, top) for _ in token_ids]


async def _token(batches: Path) -> str:
    """Of the batch service, which keeps it in its folder too."""
    return (batches / "token").read_text("ascii")


@contextmanager
def serving(folder: Path, **sections: Any) -> Iterator[str]:
    """Its URL, with the models `tiny`, `long` (which has room for functions), `base` (which has no chat), `texts`
    (which embeds) and `judge` (which scores).

    ``sections``: of the configuration, beside.
    """
    tiny, base = write_model(folder / "tiny.gguf"), write_model(folder / "base.gguf", template=None)
    long = write_model(folder / "long.gguf", context_length=LONG_MODEL_LEN)
    models = [
        {"name": "tiny", "source": str(tiny), "max_model_len": MAX_MODEL_LEN},
        {"name": "long", "source": str(long), "max_model_len": LONG_MODEL_LEN},
        {"name": "base", "source": str(base), "max_model_len": MAX_MODEL_LEN},
        {"name": "texts", "source": str(base), "max_model_len": MAX_MODEL_LEN, "task": "embed"},
        {"name": "judge", "source": str(base), "max_model_len": MAX_MODEL_LEN, "task": "score"}
        | {"score": {"prompt": "{instruction}: {query}? {document}.", "instruction": "is"}},
    ]
    batches = folder / "batches"
    options = {
        "models": models,
        "gateway": {"max_body_bytes": MAX_BODY_BYTES},
        "batches": {"enabled": True, "folder": str(batches)},
        "admin_port": free_port_range(len(ADMIN_SERVICES) + 1),
        **sections,
    }
    config = ClusterConfig.model_validate(options)
    loop = asyncio.new_event_loop()
    started, ending = threading.Event(), asyncio.Event()
    urls: list[str] = []

    async def run() -> None:
        queue = MemoryQueue(answering)
        dispatcher = Dispatcher(queue, "gateway-0")
        context = GatewayContext(
            config, load_models(config), dispatcher, lambda: "", read_batch_token=lambda: _token(batches)
        )
        runner = await listen(build_app(context), "127.0.0.1", 0, CUT_S, ClientsRunner)
        reader = asyncio.create_task(queue.serve(dispatcher))
        urls.append("http://{}:{}".format(*runner.addresses[0][:2]))
        async with batch_service(config, connect(NO_REDIS), ending.set, registry=CollectorRegistry()):
            started.set()
            await ending.wait()
            await runner.cleanup()
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)

    with structlog.testing.capture_logs():  # one line a request
        thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
        thread.start()
        try:
            assert started.wait(START_TIMEOUT_S), "it has not started"
            yield urls[0]
        finally:
            loop.call_soon_threadsafe(ending.set)
            thread.join()
            loop.close()
