"""The engine's end of the socket: commands between two steps, whole images among them."""

from __future__ import annotations

import socket
from threading import Thread

from gpu_node.engine.process.connection import EngineConnection
from gpu_node.engine.process.framing import frame
from gpu_node.engine.process.protocol import RunAttempt
from shared.messages.payload import Payload, Sampling

IMAGE_BYTES = 16 << 20

SOCKET_BYTES = 1 << 16


def test_an_image_larger_than_the_socket_holds_comes_in_a_few_looks_while_its_sender_writes() -> None:
    command = RunAttempt(Payload("r", 0, "g", "m", [1], Sampling(max_tokens=1)), bytes(IMAGE_BYTES))
    agent, engine = socket.socketpair()
    with agent, engine:
        engine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        agent.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        sender = Thread(target=agent.sendall, args=(frame(command),))
        sender.start()
        connection = EngineConnection(engine)
        commands = connection.receive(wait=True)
        num_looks = 1
        while not commands:
            commands = connection.receive(wait=False)
            num_looks += 1
        sender.join()
    assert commands == [command]
    assert num_looks <= 8, "a step lies between two of them"


def test_a_look_ends_where_nothing_more_comes() -> None:
    data = frame(RunAttempt(Payload("r", 0, "g", "m", [1], Sampling(max_tokens=1)), bytes(1000)))
    agent, engine = socket.socketpair()
    with agent, engine:
        connection = EngineConnection(engine)
        agent.sendall(data[:-1])
        assert connection.receive(wait=False) == []
        agent.sendall(data[-1:])
        assert len(connection.receive(wait=False)) == 1
