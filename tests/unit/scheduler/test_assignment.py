"""Models of empty nodes: each phase of requests has all of them, as far as its nodes suffice."""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.core import ASSIGN_DELAY_S, SchedulerCore
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.messages.message import Tick
from shared.messages.nodes.nodes import BOTH, Heartbeat, Load, NodeFacts, Phases
from shared.service.core import Send

CONFIG = ClusterConfig(
    models=[ModelSpec(name=name, source="/m") for name in "ab"], nodes=[NodeSpec(name="n0"), NodeSpec(name="n1")]
)


def loads(gone: Sequence[str] = (), *, follows_load: bool = False, **phases: Phases) -> dict[str, str]:
    """What nodes are told to load that come without a model at the same time; ``gone``: as they tell of models."""
    core = SchedulerCore(CONFIG)
    for name, one in phases.items():
        facts = NodeFacts(device="cpu", phases=one, gone_models=list(gone), follows_load=follows_load)
        beat = Heartbeat(
            node=name,
            epoch=f"{name}.1",
            facts=facts,
            model="",
            num_blocks=0,
            num_free_blocks=0,
            num_running=0,
            num_waiting=0,
        )
        core.handle(beat, 1.0)
    effects = core.handle(Tick(), 1.0 + ASSIGN_DELAY_S)
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return {message.node: message.model for message in messages if isinstance(message, Load)}


def test_nodes_of_equal_phases_share_the_models_among_themselves() -> None:
    assert loads(p0="prefill", d0="decode", p1="prefill", d1="decode") == {"p0": "a", "d0": "a", "p1": "b", "d1": "b"}


def test_nodes_of_both_phases_are_alike() -> None:
    assert loads(n0=BOTH, n1=BOTH, n2=BOTH) == {"n0": "a", "n1": "b", "n2": "a"}


def test_nodes_that_follow_the_load_are_alike_whatever_they_serve() -> None:
    assert loads(n0="prefill", n1="decode", n2=BOTH, follows_load=True) == {"n0": "a", "n1": "b", "n2": "a"}


def test_no_empty_node_is_given_a_model_that_is_gone() -> None:
    assert loads(gone=["a"], n0=BOTH, n1=BOTH) == {"n0": "b", "n1": "b"}
