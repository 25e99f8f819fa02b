"""When the simulator wakes a core."""

from __future__ import annotations

from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.service import SimulatedService
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.service.core import Effect


class Alarm:
    """A core that wants to be woken at some times, and notes when it is."""

    def __init__(self, times: list[float]) -> None:
        self.times = times
        self.woken: list[float] = []

    @property
    def wake_at(self) -> float | None:
        return self.times[0] if self.times else None

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        self.woken.append(now)
        self.times = [time for time in self.times if time > now]
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        assert not state

    def describe(self) -> dict[str, object]:
        return {}


def test_it_is_woken_once_for_each_time_however_often_that_has_changed() -> None:
    bus = MemoryBus()
    alarm = Alarm([8.0])
    SimulatedService(bus, "inbox", lambda: alarm)
    alarm.times = [5.0, 8.0]
    bus.send("inbox", Tick())
    bus.run_until(20.0)
    assert alarm.woken[1:] == [5.0, 8.0], "behind the message itself"


def test_a_time_that_is_over_is_now() -> None:
    bus = MemoryBus()
    bus.run_until(3.0)
    alarm = Alarm([1.0])
    SimulatedService(bus, "inbox", lambda: alarm)
    bus.run_until(4.0)
    assert alarm.woken == [3.0]
