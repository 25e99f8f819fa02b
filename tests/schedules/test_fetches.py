"""Schedules of faults in clusters whose nodes read each other's caches: no token changes, nobody waits for ever, and
nothing of a fetch is left behind. Defects that somebody could make there are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpu_node.agent.decisions.actions import FetchPrefix, PrefixFetched
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.intake.sought_prefixes import SoughtPrefixes
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, ReleaseImages
from shared.messages.requests.requests import Attempt
from tests.schedules.cached import CachedPrefixes
from tests.schedules.cluster import Cluster
from tests.schedules.doors import Asker, Door, Doors
from tests.schedules.fetches import fetching_setup
from tests.schedules.judge import Looks
from tests.schedules.node import NodeProcess
from tests.schedules.node_prefixes import NodePrefixes
from tests.schedules.process import Armed, Process
from tests.schedules.schedule import run
from tests.schedules.setup import Planned, Setup
from tests.schedules.tally import tally
from tests.schedules.transcript import Transcript

pytestmark = pytest.mark.slow

NUM_SEEDS = 200
MAX_SEEDS = 400


def test_promises_are_kept_whatever_fails() -> None:
    sums = tally(range(NUM_SEEDS), all_fetch=True)
    assert sums.failed == {}
    assert sums.fetches["fetched"] > NUM_SEEDS // 5, "as a rule it comes"
    assert sums.fetches.keys() >= {"late", "lost", "unreachable", "stopped"}, "faults meet fetches at every place"


class CarelessCache(CachedPrefixes):
    """Does not tell its weights apart from those of other nodes."""

    node = ""

    def _right(self, name: int) -> str:
        return f"{super()._right(name)} at {self.node}"


class CarelessNode(NodeProcess):
    """Its cache is careless."""

    def _make_cache(self, kv_format: str) -> CachedPrefixes:
        cache = CarelessCache(kv_format)
        cache.node = self.name
        return cache


class SilentPrefixes(NodePrefixes):
    """Does not say that nothing has come."""

    def __init__(
        self,
        process: Process,
        epoch: str,
        doors: Doors,
        send: Callable[[CopyPrefix | ReleaseImages], None],
        hear: Callable[[PrefixFetched], None],
    ) -> None:
        def hear_some(event: PrefixFetched) -> None:
            if event.file != NO_IMAGE:
                hear(event)

        super().__init__(process, epoch, doors, send, hear_some)


class SilentNode(NodeProcess):
    """With them."""

    def _make_prefixes(self, epoch: str, doors: Doors) -> NodePrefixes:
        return SilentPrefixes(self, epoch, doors, self.engine.send, self._hear)


class PatientAsker(Asker):
    """Waits for as long as it takes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._until_s += 1e6


class PatientPrefixes(NodePrefixes):
    """With that."""

    def _asker(self, wanted: FetchPrefix, is_wanted: Callable[[], bool]) -> Asker:
        return PatientAsker(self._process.agenda, self._doors, wanted, is_wanted)


class PatientNode(NodeProcess):
    """With them."""

    def _make_prefixes(self, epoch: str, doors: Doors) -> NodePrefixes:
        return PatientPrefixes(self, epoch, doors, self.engine.send, self._hear)


class KeepingDoor(Door):
    """Lets go of no copy that nobody has fetched."""

    def _release(self, copy: int) -> None:
        self.held.pop(copy, None)


class KeepingNode(NodeProcess):
    """With that."""

    def _make_prefixes(self, epoch: str, doors: Doors) -> NodePrefixes:
        prefixes = super()._make_prefixes(epoch, doors)
        prefixes.door = doors.doors[self.name] = KeepingDoor(self, epoch, self.engine.send, self.meet)
        return prefixes


class ForgettingNothing(SoughtPrefixes):
    """Keeps who has begun."""

    def forget(self, attempt: Attempt) -> None:
        """Nobody."""


class HoardingNode(NodeProcess):
    """Its agent keeps who has begun."""

    def _make_core(self, epoch: str) -> AgentCore:
        core = super()._make_core(epoch)
        core.intake._sought = ForgettingNothing(self.name, core.models, is_on=True)
        return core


def lossy(seed: int) -> Setup:
    """Every node's first answer about its cache is lost."""
    setup = fetching_setup(seed)
    lost = Armed("answer lost", "node", "prefix copy", 0.0)
    faults = (Planned(0.5, "process fault", node, 0.0, 0.0, 0.0, lost) for node in range(setup.num_nodes))
    return replace(setup, faults=tuple(faults))


@pytest.mark.parametrize(
    ("make_node", "words"),
    [
        (CarelessNode, "choice 0 is"),
        (SilentNode, "has sought the prompt of"),
        (PatientNode, "has sought the prompt of"),
        (KeepingNode, "its engine has lent"),
        (HoardingNode, "is sought for and has begun"),
    ],
)
def test_a_planted_defect_is_found(make_node: type[NodeProcess], words: str) -> None:
    for seed in range(MAX_SEEDS):
        setup = lossy(seed) if make_node is PatientNode else fetching_setup(seed)
        cluster = Cluster(setup, transcript=Transcript(is_kept=False), look=Looks(), make_node=make_node)
        try:
            run(cluster)
        except AssertionError as error:
            if words in str(error):
                return
    pytest.fail(f"not found within {MAX_SEEDS} seeds")
