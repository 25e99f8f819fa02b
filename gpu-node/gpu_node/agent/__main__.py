"""The node agent's process: configuration, admin port, one call."""

from __future__ import annotations

import argparse
import os

from prometheus_client import REGISTRY

from gpu_node.agent.images.image_server import ImageServer
from gpu_node.agent.images.own_address import own_url
from gpu_node.agent.images.prefix_server import PrefixServer
from gpu_node.agent.process.agent import Agent
from gpu_node.agent.process.model_watch import ModelWatch
from gpu_node.agent.telemetry.engine_gauges import EngineGauges
from shared.bus.bus import check_reachable, connect
from shared.config.config import NODE_ENV, ClusterConfig, ConfigError, config_file, load_config
from shared.config.reading.file_watch import FileWatch
from shared.service.admin.admin import Admin, serve_admin
from shared.service.service import admin_port, redis_url, run_process, stop_on_signals
from shared.telemetry.telemetry import configure_logging, configure_tracing


async def serve(config: ClusterConfig, node: str) -> None:
    """Run the agent of ``node`` until SIGTERM."""
    names = [*(spec.name for spec in config.nodes), *(f"{pool.name}-0 …" for pool in config.pools)]
    try:
        spec = config.node(node)
    except KeyError:
        raise ConfigError(f"there is no node {node!r} (there are: {', '.join(names)})") from None
    configure_logging("node", node)
    configure_tracing("node", node, config.otlp_endpoint)
    stop = stop_on_signals()
    redis = connect(redis_url(config))
    await check_reachable(redis)
    port = admin_port(config, node)
    base_url = own_url(config.admin_host, port, redis_url(config))
    path = config_file()
    models = ModelWatch(FileWatch(path), lambda: tuple(load_config().models), tuple(config.models)) if path else None
    agent = Agent(
        redis,
        spec,
        config.engine,
        base_url,
        models=models,
        tells_blocks=config.routes_warm,
        exchanges_prefixes=config.routes_warm and config.queue.uses("fetch"),
    )
    REGISTRY.register(EngineGauges(lambda: agent.core, config.engine))
    admin = Admin(not_ready=lambda: agent.not_ready, status=agent.status)
    images = ImageServer(lambda: agent.given)
    prefixes = PrefixServer(lambda: agent.giver)
    runner = await serve_admin(admin, config.admin_host, port, [*images.routes(), *prefixes.routes()])
    try:
        await agent.run(stop)
    finally:
        await runner.cleanup()
        images.close()
        await redis.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m gpu_node.agent")
    named = os.environ.get(NODE_ENV)
    parser.add_argument(
        "--node", default=named, required=not named, help=f"its name in the configuration, or {NODE_ENV}"
    )
    name = parser.parse_args().node
    run_process(lambda config: serve(config, name))
