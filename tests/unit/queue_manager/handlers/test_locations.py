"""Requests that wait for the KV manager to say who has the beginning of their prompts."""

from __future__ import annotations

import pytest

from services.queue_manager import invariants
from services.queue_manager.core import QueueManagerCore
from services.queue_manager.handlers.locations import WAIT_S
from shared.config.config import ClusterConfig
from shared.config.services.queue import OperationOptions, QueueOptions
from shared.messages.memory.blocks import Located, WarmNode
from shared.messages.message import Tick
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.prefixes.prefix_sources import KvDoor, PrefixSource
from shared.messages.prefixes.prefixes import PromptPrefix
from shared.messages.requests.requests import Attempt, Cancel, Enqueued, Pulled, Submit
from shared.messages.requests.slo import Slo
from shared.service.core import Effect, Send
from tests.unit.queue_manager.made import LARGE

PREFIX = PromptPrefix(16, list(range(1, 21)))
RATE = ModelRate("m", StepCost(0.01, 0.001, 0.0), kv_tokens=100_000, kv_token_bytes=1_000, load_s=1.0, kv_format="f")
DOOR = KvDoor("http://n:1", "t")


def submit(name: str = "r", *, attempt: int = 0, prefix: PromptPrefix | None = PREFIX) -> Submit:
    slo = Slo("interactive", deadline_s=20.0)
    return Submit(
        request_id=name,
        gateway="gw",
        model="m",
        slo=slo,
        prompt_tokens=330,
        max_tokens=20,
        attempt=attempt,
        prefix=prefix,
    )


def core_with(
    num_nodes: int = 2,
    *,
    max_num_seqs: int = 4,
    warm: bool | None = None,
    fetch: bool | None = None,
    door: KvDoor | None = None,
) -> QueueManagerCore:
    queue = QueueOptions(delta=LARGE.delta, operations=OperationOptions(warm=warm, fetch=fetch))
    core = QueueManagerCore(ClusterConfig(queue=queue))
    for number in range(num_nodes):
        known = NodeState(
            f"n{number}",
            "m",
            max_num_seqs=max_num_seqs,
            step_tokens=512,
            rates=[RATE],
            device="cpu",
            max_image_bytes=1 << 30,
            door=door,
        )
        core.handle(NodeUp(epoch="1", known=known), 0.0)
    return core


def answer(*nodes: WarmNode, name: str = "r", attempt: int = 0) -> Located:
    return Located(request_id=name, attempt=attempt, nodes=list(nodes))


def placed(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Send) and isinstance(effect.message, Enqueued) for effect in effects)


def node_of(core: QueueManagerCore, name: str = "r") -> str:
    invariants.check(core.state)
    return core.state.groups[core.state.requests[name].group].node


def test_it_waits_and_is_placed_where_its_prompt_is() -> None:
    core = core_with()
    assert not placed(core.handle(submit(), 1.0))
    assert core.wake_at == 1.0 + WAIT_S
    invariants.check(core.state)
    effects = core.handle(answer(WarmNode("n1", 18)), 1.001)
    assert placed(effects)
    assert node_of(core) == "n1"
    assert core.state.locating == {}


def test_a_warm_node_is_left_where_the_wait_costs_more() -> None:
    """Three prompts of 330 tokens wait at n1 already, each 0.34 s; the fourth is computed at n0 meanwhile."""
    core = core_with()
    for name in ("a", "b", "c"):
        core.handle(submit(name), 1.0)
        core.handle(answer(WarmNode("n1", 20), name=name), 1.0)
        gid = core.state.requests[name].group
        core.handle(Pulled(node=node_of(core, name), epoch="1", group=gid, requests=[Attempt(name, 0)]), 1.0)
    assert [node_of(core, name) for name in "abc"] == ["n1"] * 3
    core.state.nodes["n1"].unread = type(core.state.nodes["n1"].unread)(until_s=3.0, share=1.0)
    core.handle(submit(), 1.0)
    core.handle(answer(WarmNode("n1", 20)), 1.0)
    assert node_of(core) == "n0"


def test_where_nothing_is_found_it_is_placed_as_without() -> None:
    core, blind = core_with(), core_with(warm=False)
    core.handle(submit(), 1.0)
    core.handle(answer(), 1.0)
    assert placed(blind.handle(submit(), 1.0))
    assert node_of(core) == node_of(blind) == "n0"


@pytest.mark.parametrize("reason", ["one node", "no names", "off"])
def test_where_there_is_nothing_to_wait_for_it_is_placed_at_once(reason: str) -> None:
    core = core_with(1 if reason == "one node" else 2, warm=False if reason == "off" else None)
    assert placed(core.handle(submit(prefix=None if reason == "no names" else PREFIX), 1.0))


def test_nobody_waits_for_long_and_a_silent_kv_manager_is_not_waited_for_again() -> None:
    core = core_with()
    core.handle(submit("r"), 1.0)
    assert placed(core.handle(Tick(), 1.0 + WAIT_S))
    assert node_of(core) == "n0"
    assert core.state.is_index_silent
    assert placed(core.handle(submit("s"), 1.1))


def test_a_kv_manager_that_comes_back_is_waited_for_once_it_answers_in_time() -> None:
    core = core_with()
    core.handle(submit("r"), 1.0)
    core.handle(Tick(), 1.0 + WAIT_S)
    core.handle(answer(WarmNode("n1", 20)), 3.0)  # it has begun with what it was asked while it was away
    assert core.state.is_index_silent
    assert placed(core.handle(submit("s"), 3.0))
    assert not placed(core.handle(answer(WarmNode("n0", 20), name="s"), 3.001))
    assert node_of(core, "s") == "n1", "it stays where it is"
    assert not core.state.is_index_silent
    assert not placed(core.handle(submit("t"), 3.002))


def test_a_client_that_leaves_meanwhile_is_forgotten() -> None:
    core = core_with()
    core.handle(submit(), 1.0)
    core.handle(Cancel(request_id="r"), 1.0)
    assert (core.state.requests, core.state.locating) == ({}, {})
    assert not placed(core.handle(answer(WarmNode("n1", 20)), 1.0))


def test_an_answer_for_an_earlier_attempt_places_nobody() -> None:
    core = core_with()
    core.handle(submit(), 1.0)
    assert core.handle(submit(), 1.0) == [], "a repetition"
    core.handle(submit(attempt=1), 1.0)
    assert not placed(core.handle(answer(WarmNode("n1", 20)), 1.0))
    assert placed(core.handle(answer(WarmNode("n1", 20), attempt=1), 1.0))
    assert node_of(core) == "n1"


def test_those_that_have_to_wait_do_so_together_where_their_prompts_are() -> None:
    """Each node has one place, which is taken. A quarter of a prompt binds nobody."""
    core = core_with(max_num_seqs=1)
    for number, name in enumerate(("a", "b")):
        core.handle(submit(name), 1.0)
        core.handle(answer(WarmNode(f"n{number}", 20), name=name), 1.0)
    for name, warm in (("c", 20), ("d", 20), ("e", 5)):
        core.handle(submit(name), 1.0)
        core.handle(answer(WarmNode("n1", warm), name=name), 1.0)
    invariants.check(core.state)
    requests, groups = core.state.requests, core.state.groups
    assert requests["c"].group == requests["d"].group != requests["e"].group
    assert (groups[requests["c"].group].warm_at, node_of(core, "c")) == ("n1", "n1")
    assert groups[requests["e"].group].warm_at == ""


def test_a_restored_core_goes_on_waiting() -> None:
    core = core_with()
    core.handle(submit(), 1.0)
    restored = QueueManagerCore(ClusterConfig())
    restored.restore(core.snapshot())
    assert restored.state == core.state
    assert placed(restored.handle(answer(WarmNode("n1", 20)), 1.0))
    assert node_of(restored) == "n1"


def sources(effects: list[Effect]) -> list[PrefixSource | None]:
    """Of the entries that were written."""
    messages = (effect.message for effect in effects if isinstance(effect, Send))
    return [message.prefix_at for message in messages if isinstance(message, Enqueued)]


def with_two_busy_at(core: QueueManagerCore, node: str) -> None:
    """Both of its places are taken, so that who comes begins elsewhere."""
    for name in ("a", "b"):
        core.handle(submit(name), 1.0)
        core.handle(answer(WarmNode(node, 20), name=name), 1.0)
        gid = core.state.requests[name].group
        core.handle(Pulled(node=node, epoch="1", group=gid, requests=[Attempt(name, 0)]), 1.0)


def test_who_begins_elsewhere_is_told_whose_cache_has_its_prompt() -> None:
    """320 tokens take 0.32 s to compute, and with 320 kB at 1 GB/s next to nothing beside a question of 30 ms."""
    core = core_with(max_num_seqs=2, door=DOOR)
    with_two_busy_at(core, "n1")
    core.handle(submit(), 1.0)
    effects = core.handle(answer(WarmNode("n1", 20)), 1.0)
    assert node_of(core) == "n0"
    assert sources(effects) == [PrefixSource("n1", DOOR, 320, "f", 0.5)]
    assert core.state.requests["r"].warm_tokens == 320, "n0 computes the rest"


def test_until_it_is_pulled_it_may_be_moved_from_where_its_prompt_is() -> None:
    """Nodes do not ask themselves. Behind one that runs, it stays where it is."""
    core = core_with(door=DOOR)
    for name, expected in (("r", [PrefixSource("n1", DOOR, 320, "f", 0.5)]), ("s", [None])):
        core.handle(submit(name), 1.0)
        assert sources(core.handle(answer(WarmNode("n1", 20), name=name), 1.0)) == expected
        assert node_of(core, name) == "n1"
        gid = core.state.requests[name].group
        core.handle(Pulled(node="n1", epoch="1", group=gid, requests=[Attempt(name, 0)]), 1.0)


def test_who_waits_may_be_moved_and_is_told_who_has_most() -> None:
    core = core_with(max_num_seqs=1, door=DOOR)
    for number, name in enumerate(("a", "b")):
        core.handle(submit(name), 1.0)
        core.handle(answer(WarmNode(f"n{number}", 20), name=name), 1.0)
    core.handle(submit(), 1.0)
    effects = core.handle(answer(WarmNode("n1", 20)), 1.0)
    assert node_of(core) == "n1"
    assert sources(effects) == [PrefixSource("n1", DOOR, 320, "f", 0.5)]


def test_who_begins_at_one_of_two_nodes_with_its_prompt_is_told_of_that_one() -> None:
    """Told of the other one, it would ask its engine first."""
    core = core_with(door=DOOR)
    core.handle(submit(), 1.0)
    effects = core.handle(answer(WarmNode("n0", 20), WarmNode("n1", 20)), 1.0)
    assert sources(effects) == [PrefixSource(node_of(core), DOOR, 320, "f", 0.5)]


@pytest.mark.parametrize("reason", ["off", "no door", "gone"])
def test_without_a_source_it_is_computed(reason: str) -> None:
    core = core_with(
        max_num_seqs=2, fetch=False if reason == "off" else None, door=None if reason == "no door" else DOOR
    )
    with_two_busy_at(core, "n1")
    core.handle(submit(), 1.0)
    warm = WarmNode("n9" if reason == "gone" else "n1", 20)
    assert sources(core.handle(answer(warm), 1.0)) == [None]
    assert node_of(core) == "n0"
    assert core.state.requests["r"].warm_tokens == 0
