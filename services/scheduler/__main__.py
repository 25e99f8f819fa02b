"""The scheduler's process: configuration and one call."""

from services.scheduler.core import SchedulerCore
from services.scheduler.metrics import measure
from services.scheduler.placement import solve
from services.scheduler.providers.keeper import keep_pools
from shared.bus import streams
from shared.service.service import run_service

if __name__ == "__main__":
    run_service("scheduler", streams.SCHEDULER, SchedulerCore, measure, solve, keep_pools)
