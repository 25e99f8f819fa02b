"""The gateway's process: it serves clients itself, or is the parent of workers that do."""

from __future__ import annotations

import sys

from gateway.workers.worker import Worker, parse_worker
from shared.config.config import ClusterConfig
from shared.service.service import run_process


async def _run(config: ClusterConfig, worker: Worker | None) -> None:
    # imported where it is needed: a parent has no use for models and tokenizers, nor a worker for a parent
    if worker is None and config.gateway.workers > 1:
        from gateway.workers.parent import supervise

        await supervise(config)
    else:
        from gateway.serving import serve

        await serve(config, worker)


if __name__ == "__main__":
    told = parse_worker(sys.argv[1:])
    run_process(lambda config: _run(config, told))
