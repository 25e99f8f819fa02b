"""A conversation, taken for one call: what its client is told where that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.inflight.kept_responses import MAX_RESPONSE_BYTES
from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError
from gateway.kept.conversations import ConversationLockedError, ConversationStore, ConversationTooLongError
from gateway.kept.held_conversation import HeldConversation
from gateway.openai.errors import errors, kept_errors

CONVERSATION_PREFIX = "conv_"
"""Of their ids: what else is kept in the same place has others."""
MAX_CONVERSATION_ID_CHARACTERS = 64


def check_conversation_id(conversation_id: str, param: str = "conversation_id") -> None:
    """`ApiError` 404 for what is the id of none."""
    is_one = conversation_id.startswith(CONVERSATION_PREFIX) and conversation_id.isascii()
    if not is_one or len(conversation_id) > MAX_CONVERSATION_ID_CHARACTERS:
        raise kept_errors.conversation_not_found(param)


async def take_conversation(
    store: ConversationStore, tenant: str, conversation_id: str, operation: str, param: str = "conversation_id"
) -> tuple[HeldConversation, int]:
    """Locked for this operation, with its bytes; `ApiError` 404, and 400 where another one works on it."""
    check_conversation_id(conversation_id, param)
    try:
        taken = await HeldConversation.take(store, tenant, conversation_id, operation)
    except ConversationLockedError as error:
        raise kept_errors.conversation_locked() from error
    if taken is None:
        raise kept_errors.conversation_not_found(param)
    return taken


@contextmanager
def telling_refusals() -> Iterator[None]:
    """What Redis refuses, or does not answer, is raised as an `ApiError`."""
    try:
        yield
    except QueueFullError as error:
        raise errors.no_memory() from error
    except QueueUnavailableError as error:
        raise errors.no_endpoints("the queue cannot be reached") from error
    except ConversationTooLongError as error:
        raise kept_errors.conversation_too_long(MAX_RESPONSE_BYTES) from error
