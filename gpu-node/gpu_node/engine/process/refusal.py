"""The end of an engine process that cannot run as it is configured: its agent is told why."""

from __future__ import annotations

import socket

import structlog

from gpu_node.engine.process.connection import AgentGoneError, EngineConnection
from gpu_node.engine.process.protocol.protocol import EngineRefused, Shutdown


def refuse(descriptor: int, reason: str) -> None:
    """Tell the agent, and stay until it has read that: a socket closed on unread commands may lose what was sent."""
    with socket.socket(fileno=descriptor) as sock:
        connection = EngineConnection(sock)
        try:
            connection.send(EngineRefused(reason))
            while Shutdown() not in connection.receive(wait_s=None):
                pass
        except (AgentGoneError, TimeoutError) as gone:
            structlog.get_logger().info("engine ends", reason=str(gone))
