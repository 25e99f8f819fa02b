"""Files on their way through the gateway, in either direction: few at a time, of each tenant fewer."""

from __future__ import annotations

from gateway.openai.errors import batch_errors
from gateway.tenants.tenant_limit import TenantLimit

MAX_TRANSFERS = 32  # of one process: each holds a connection and some pieces of 64 KiB
MAX_OF_TENANT = 8


def transfers() -> TenantLimit:
    """Of one process."""
    return TenantLimit(MAX_TRANSFERS, MAX_OF_TENANT, batch_errors.too_many_transfers)
