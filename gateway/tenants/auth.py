"""API keys: who a client is and which promises it may ask for. Keys are kept only as digests."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.openai.errors import errors
from gateway.tenants.shares import divided
from shared.config.services.clients import ApiKey
from shared.messages.requests.requests import DEFAULT_TENANT

KEY_HEADER = "x-api-key"
"""Where clients of Anthropic's write the key."""


@dataclass(frozen=True)
class Client:
    """What a key says about its holder; never what the client says about itself."""

    tenant: str
    slo_classes: tuple[str, ...] | None
    """Classes it may ask for; None stands for all."""
    max_inflight: int | None = None
    """Requests that this process holds for the key at a time; None: as many as its tenant may have."""
    requests_per_minute: int | None = None
    """Requests that the cluster takes for the key within a minute; None: as many as come."""
    tokens_per_minute: int | None = None
    """Tokens of prompts and answers, likewise."""
    key_id: bytes = field(default=b"", repr=False, compare=False)
    """The key's digest; empty where the gateway is open."""


ANYONE = Client(tenant=DEFAULT_TENANT, slo_classes=None)


class KeyRing:
    """The configured keys, which do not change: others are another ring. Without any, the gateway is open."""

    def __init__(self, keys: Sequence[ApiKey], num_processes: int = 1) -> None:
        """``num_processes``: among as many a key's ``max_inflight`` is divided."""
        self._clients = {client.key_id: client for client in (_client(key, num_processes) for key in keys)}
        self._tenants = {client.tenant for client in self._clients.values()}

    def __eq__(self, other: object) -> bool:
        """The same keys, which say the same."""
        return isinstance(other, KeyRing) and self._clients == other._clients

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_open(self) -> bool:
        """There are no keys."""
        return not self._clients

    @property
    def num_keys(self) -> int:
        """How many there are."""
        return len(self._clients)

    @property
    def has_tenants(self) -> bool:
        """Whether its keys name more than one tenant."""
        return len(self._tenants) > 1

    def knows(self, client: Client) -> bool:
        """Whether the key that a client came with is one of these, or none is needed."""
        return self.is_open or client.key_id in self._clients

    def has(self, key_id: bytes) -> bool:
        """Whether the key with this digest is one of these."""
        return key_id in self._clients

    def client_of(self, key_id: str) -> Client:
        """The client whose key has this digest, in hexadecimal; `ApiError` 401 where it was revoked."""
        if self.is_open:
            return ANYONE
        client = self._clients.get(bytes.fromhex(key_id))
        if client is None:
            raise errors.key_revoked()
        return client

    def authenticate(self, headers: Mapping[str, str]) -> Client:
        """The client that ``Authorization: Bearer KEY`` names, or without that, ``x-api-key: KEY``.

        `ApiError` 401 for any other request.
        """
        if self.is_open:
            return ANYONE
        digest = _digest(_key(headers))
        # All keys are compared, each in constant time: how long it takes says nothing about which one was near.
        found = [client for known, client in self._clients.items() if hmac.compare_digest(known, digest)]
        if not found:
            raise errors.wrong_key(missing=False)
        return found[0]


def _key(headers: Mapping[str, str]) -> str:
    if "Authorization" not in headers:
        key = headers.get(KEY_HEADER, "").strip()
    else:
        scheme, _, key = headers["Authorization"].partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
    if not key:
        raise errors.wrong_key(missing=True)
    return key


def _client(key: ApiKey, num_processes: int) -> Client:
    return Client(
        tenant=key.tenant,
        slo_classes=None if key.slo_classes is None else tuple(key.slo_classes),
        max_inflight=None if key.max_inflight is None else divided(key.max_inflight, num_processes),
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        key_id=_digest(key.key.get_secret_value()),
    )


def _digest(key: str) -> bytes:
    # A header's bytes that are no UTF-8 arrive as surrogates.
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
