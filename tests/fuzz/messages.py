"""Messages, stream entries, payloads and trace contexts: what processes read from Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared.messages.codec import FIELD, UndecodableError, decode_entry, decode_payload, encode
from shared.messages.message import Message
from shared.messages.requests.payload import Payload
from shared.telemetry.trace_context import trace_id
from tests.contract.examples import MESSAGES, PAYLOAD, least
from tests.contract.test_bytes import pinned
from tests.fuzz.target import Target, refused, rule
from tests.fuzz.trees import msgpack_mutator


def _messages() -> Sequence[bytes]:
    return [encode(one) for message in MESSAGES for one in (message, least(message))]


def _payloads() -> Sequence[bytes]:
    return [encode(PAYLOAD), encode(least(PAYLOAD))]


def _check_message(data: bytes) -> bool:
    return _check(data, lambda data: decode_entry({FIELD: data}))


def _check_payload(data: bytes) -> bool:
    return _check(data, decode_payload)


def _check(data: bytes, decode: Callable[[bytes], Message | Payload]) -> bool:
    """What decodes is written as bytes that decode to the same; so is what it says of its trace."""
    found: list[Message | Payload] = []
    if refused(lambda: found.append(decode(data)), UndecodableError):
        return False
    written = encode(found[0])
    rule(encode(decode(written)) == written, "a decoded message is written and read again as the same")
    trace_id(found[0].traceparent)
    return True


def _check_pinned(data: bytes) -> bool:
    """Bytes of the contract, of which some are payloads: whichever decoder is asked refuses or answers."""
    return _check_message(data) or _check_payload(data)


def _pinned() -> Sequence[bytes]:
    return [bytes.fromhex(lines[2]) for lines in pinned().values()]


TARGETS = [
    Target("messages", _messages, _check_message, msgpack_mutator, is_guided=False, share=500),
    Target("payloads", _payloads, _check_payload, msgpack_mutator, is_guided=False, share=100),
    Target("pinned bytes", _pinned, _check_pinned, is_guided=False, share=150),
]
