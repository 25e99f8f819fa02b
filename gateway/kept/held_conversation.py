"""A conversation that one operation has locked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from msgspec import structs

from gateway.inflight.queue_port import QueueUnavailableError
from gateway.kept.conversations import ConversationRecord, ConversationStore, ConversationTooLongError

_log = structlog.get_logger(__name__)


class HeldConversation:
    """From its lock to its unlocking; what was read then is what it is until then."""

    def __init__(
        self, store: ConversationStore, conversation_id: str, operation: str, found: ConversationRecord
    ) -> None:
        self._store = store
        self._conversation_id = conversation_id
        self._operation = operation
        self._is_held = True
        self.found = found

    @classmethod
    async def take(
        cls, store: ConversationStore, tenant: str, conversation_id: str, operation: str
    ) -> tuple[HeldConversation, int] | None:
        """With its bytes; None where this tenant has none by this id. `ConversationLockedError`."""
        locked = await store.lock(tenant, conversation_id, operation)
        if locked is None:
            return None
        found, num_bytes = locked
        return cls(store, conversation_id, operation, found), num_bytes

    async def write(self, conversation: ConversationRecord) -> bool:
        """As it is from now on; see `ConversationStore.write`."""
        return await self._store.write(
            self._conversation_id, self._operation, structs.replace(conversation, last=self._operation)
        )

    async def add(self, items: Sequence[dict[str, Any]]) -> bool:
        """Whether these are its last items now; why not stands in the log. Done again it does nothing."""
        if self.found.last == self._operation:
            return True
        try:
            return await self.write(structs.replace(self.found, items=[*self.found.items, *items]))
        except (QueueUnavailableError, ConversationTooLongError) as error:
            why = str(error) or type(error).__name__
            _log.warning("conversation not written", conversation_id=self._conversation_id, why=why)
            return False

    async def unlock(self) -> None:
        """Others may work on it; a lock that Redis cannot be told of is void when this process has ended."""
        if not self._is_held:
            return
        self._is_held = False
        try:
            await self._store.unlock(self._conversation_id, self._operation)
        except QueueUnavailableError as error:
            _log.warning("conversation not unlocked", conversation_id=self._conversation_id, why=str(error))

    def unlock_soon(self) -> None:
        """The same where no task can wait for it."""
        if self._is_held:
            self._store.soon(self.unlock())

    def hand_over(self) -> None:
        """Its operation goes on behind this request, and unlocks it."""
        self._is_held = False
