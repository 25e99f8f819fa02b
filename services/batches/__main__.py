"""The batch service's process."""

from __future__ import annotations

import warnings

from aiohttp.multipart import BadContentDispositionHeader, BadContentDispositionParam

from services.batches.serving import serving
from shared.bus.bus import connect
from shared.config.config import BATCHES, ClusterConfig
from shared.service.service import instance_name, redis_url, run_process, stop_on_signals
from shared.telemetry.telemetry import configure_logging, configure_tracing

# Of broken forms, which are refused: these repeat what a client wrote, on stderr.
_WARNINGS = (BadContentDispositionHeader, BadContentDispositionParam)


async def _run(config: ClusterConfig) -> None:
    for kind in _WARNINGS:
        warnings.simplefilter("ignore", kind)
    instance = instance_name(BATCHES)
    configure_logging(BATCHES, instance)
    configure_tracing(BATCHES, instance, config.otlp_endpoint)
    stop, redis = stop_on_signals(), connect(redis_url(config))
    try:
        async with serving(config, redis, stop.set):
            await stop.wait()
    finally:
        await redis.aclose()


if __name__ == "__main__":
    run_process(_run)
