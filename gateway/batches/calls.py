"""Requests that the batch service sends: in whose name, and with which promise.

Limits of a key are those of its own calls (requests at a time, rates): what its batches have out is bounded by
`shared.config.services.batches.BatchOptions`, and is served when there is slack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.batches.token import BatchToken
from gateway.openai.errors import errors
from gateway.tenants.auth import Client
from gateway.tenants.keys import Keys
from shared.messages.batches.batches import KEY_HEADER, PROMISE_HEADER, TOKEN_HEADER


@dataclass(frozen=True)
class BatchCall:
    """A request of a batch."""

    client: Client
    deadline_s: float
    """Seconds from now until its answer is due."""


class BatchCalls:
    """Tells them from others."""

    def __init__(self, token: BatchToken, keys: Keys) -> None:
        self._token = token
        self._keys = keys

    async def find(self, headers: Mapping[str, str]) -> BatchCall | None:
        """What these headers say; None for a request of a client. `ApiError` for one that only claims to be of a batch.

        503 where the secret is not the one that is known here: the service tells it anew. 401: the key was revoked.
        """
        token = headers.get(TOKEN_HEADER)
        if token is None:
            return None
        if not await self._token.is_it(token):
            raise errors.no_endpoints("the secret of the batch service is not known here")
        client = self._keys.ring.client_of(headers[KEY_HEADER])
        free = dataclasses.replace(client, max_inflight=None, requests_per_minute=None, tokens_per_minute=None)
        return BatchCall(free, float(headers[PROMISE_HEADER]))
