"""The queue manager's process: configuration and one call."""

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.metrics import QueueMetrics
from shared.bus import streams
from shared.service.service import run_service

if __name__ == "__main__":
    run_service("queue-manager", streams.QUEUE, QueueManagerCore, QueueMetrics())
