"""The node agent's process: configuration, admin port, one call."""

from __future__ import annotations

import argparse

from gpu_node.agent.agent import Agent
from shared.admin import Admin, serve_admin
from shared.bus import check_reachable, connect
from shared.config import ClusterConfig, ConfigError
from shared.service import redis_url, run_process, stop_on_signals
from shared.telemetry import configure_logging, configure_tracing


async def serve(config: ClusterConfig, node: str) -> None:
    """Run the agent of ``node`` until SIGTERM."""
    if node not in [spec.name for spec in config.nodes]:
        raise ConfigError(f"there is no node {node!r} (there are: {', '.join(spec.name for spec in config.nodes)})")
    configure_logging("node", node)
    configure_tracing("node", node, config.otlp_endpoint)
    stop = stop_on_signals()
    redis = connect(redis_url(config))
    await check_reachable(redis)
    agent = Agent(redis, node, config.node(node).device, config.engine)
    admin = Admin(not_ready=lambda: agent.not_ready, status=agent.status)
    runner = await serve_admin(admin, config.admin_host, config.admin_port_of(node))
    try:
        await agent.run(stop)
    finally:
        await runner.cleanup()
        await redis.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m gpu_node.agent")
    parser.add_argument("--node", required=True, help="name of the node in the configuration")
    name = parser.parse_args().node
    run_process(lambda config: serve(config, name))
