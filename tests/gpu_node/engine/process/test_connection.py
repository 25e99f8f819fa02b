"""The engine's end of the socket: commands between two steps, long prompts among them."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
from threading import Thread

from gpu_node.engine.process.connection import EngineConnection
from gpu_node.engine.process.protocol.framing import event_decoder, frame
from gpu_node.engine.process.protocol.protocol import EngineRefused, RunAttempt
from shared.messages.requests.payload import Payload, Sampling

PIECE_BYTES = 1 << 16
NUM_PIECES = 64


def send_slowly(agent: socket.socket, data: bytes) -> None:
    """Each piece when the one before it has been read, as where a socket holds no more."""
    for start in range(0, len(data), PIECE_BYTES):
        while struct.unpack("i", fcntl.ioctl(agent, termios.TIOCOUTQ, bytes(4)))[0]:
            os.sched_yield()
        agent.sendall(data[start : start + PIECE_BYTES])


def test_a_prompt_larger_than_the_socket_holds_comes_in_a_few_looks_while_its_sender_writes() -> None:
    command = RunAttempt(Payload("r", 0, "g", "m", [1] * (NUM_PIECES * PIECE_BYTES), Sampling(max_tokens=1)))
    agent, engine = socket.socketpair()
    with agent, engine:
        sender = Thread(target=send_slowly, args=(agent, frame(command)))
        sender.start()
        connection = EngineConnection(engine)
        commands = connection.receive(wait_s=None)
        num_looks = 1
        while not commands:
            commands = connection.receive(wait_s=0.0)
            num_looks += 1
        sender.join()
    assert commands == [command]
    assert num_looks <= NUM_PIECES // 4, "a step lies between two of them"


def test_a_look_ends_where_nothing_more_comes() -> None:
    data = frame(RunAttempt(Payload("r", 0, "g", "m", [1] * 1000, Sampling(max_tokens=1))))
    agent, engine = socket.socketpair()
    with agent, engine:
        connection = EngineConnection(engine)
        agent.sendall(data[:-1])
        assert connection.receive(wait_s=0.0) == []
        agent.sendall(data[-1:])
        assert len(connection.receive(wait_s=0.0)) == 1


def test_a_long_command_and_a_long_event_pass_each_other() -> None:
    """The agent reads no event before its command is taken: its queue of events is full (`MAX_EVENTS`)."""
    command = RunAttempt(Payload("r", 0, "g", "m", [1] * (1 << 20), Sampling(max_tokens=1)))
    event = EngineRefused("x" * (4 << 20))
    told: list[object] = []
    agent, engine = socket.socketpair()
    with agent, engine:

        def write_then_read() -> None:
            agent.sendall(frame(command))
            decoder = event_decoder()
            while not told:
                told.extend(decoder.feed(agent.recv(1 << 20)))

        other = Thread(target=write_then_read)
        other.start()
        connection = EngineConnection(engine)
        connection.send(event)
        other.join()
        assert told == [event]
        assert connection.receive(wait_s=None) == [command]
