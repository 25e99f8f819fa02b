"""API keys: who a client is and which promises it may ask for. Keys are kept only as digests."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway import errors
from shared.config import ApiKey

DEFAULT_TENANT = "default"


@dataclass(frozen=True)
class Client:
    """What a key says about who holds it; never what the client says about itself."""

    tenant: str
    slo_classes: tuple[str, ...] | None
    """Classes it may ask for; None stands for all."""


ANYONE = Client(tenant=DEFAULT_TENANT, slo_classes=None)


class KeyRing:
    """The configured keys. Without any, the gateway is open."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._clients = [
            (
                _digest(key.key.get_secret_value()),
                Client(key.tenant, None if key.slo_classes is None else tuple(key.slo_classes)),
            )
            for key in keys
        ]

    def authenticate(self, headers: Mapping[str, str]) -> Client:
        """The client that ``Authorization: Bearer KEY`` names; `ApiError` 401 for everybody else."""
        if not self._clients:
            return ANYONE
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise errors.wrong_key(missing=True)
        digest = _digest(key.strip())
        # All keys are compared, each in constant time: how long it takes says nothing about which one was near.
        found = [client for known, client in self._clients if hmac.compare_digest(known, digest)]
        if not found:
            raise errors.wrong_key(missing=False)
        return found[0]


def _digest(key: str) -> bytes:
    # A header's bytes that are no UTF-8 arrive as surrogates.
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
