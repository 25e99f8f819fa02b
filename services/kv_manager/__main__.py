"""The KV manager's process: configuration and one call."""

from services.kv_manager.core import KvManagerCore
from services.kv_manager.metrics import measure
from shared.bus import streams
from shared.service.service import run_service

if __name__ == "__main__":
    run_service(
        "kv-manager",
        streams.KV,
        lambda config: KvManagerCore(has_index=config.routes_warm, offload=config.offload),
        measure,
    )
