"""What all messages are: frozen, tagged, versioned by field defaults.

Wire format: MessagePack map with a ``type`` field, one stream field ``m`` an entry. Unknown fields are ignored and new
fields have defaults, so two neighbouring versions can run side by side during an upgrade.

Fields that hold seconds on the cluster's clock (Redis time) end in ``_s``; identifiers are plain strings.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=str.lower):
    """Base of all messages. ``traceparent`` is the W3C trace context of the request or action that caused it."""

    traceparent: str = ""


class Tick(Message, frozen=True, kw_only=True):
    """Time has passed: appended by a driver to its own inbox when the core's ``wake_at`` has come."""
