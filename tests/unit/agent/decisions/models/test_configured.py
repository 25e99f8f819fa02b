"""What a node makes of models that come to the configuration, or change there, while it runs."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.agent.decisions.actions import AdaptersDue, AgentAction, Beat, Configured, Publish, Pull, Tell
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.models.models import MAX_GONE, ModelRecord
from gpu_node.agent.decisions.models.node_adapters import FILE_WAIT_S
from gpu_node.engine.process.protocol.protocol import AbortRequests, LoadModel, ModelFailed, StepReport
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import weights_mark
from shared.messages.nodes.nodes import Load
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.requests import Chunk
from tests.unit.agent.events import (
    OPTIONS,
    entry,
    evicted,
    loaded,
    make_agent,
    payload_of,
    queue,
    stats,
    step,
    taken,
    tokens,
)

A, B = (ModelSpec(name=name, source=f"{name}.gguf") for name in "ab")
UNKNOWN = ModelFailed("b", "model 'b' is not in the configuration", is_unknown=True)


def broken(agent: AgentCore) -> list[str]:
    return agent.heartbeat().facts.broken_models


def told(agent: AgentCore, *models: ModelSpec) -> list[AgentAction]:
    return list(agent.handle(Configured(models)))


def test_a_model_that_is_not_configured_here_yet_is_loaded_once_it_is() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A)
    (beat,) = agent.handle(queue(("g", "b", 1)))
    assert isinstance(beat, Beat)
    assert beat.heartbeat.facts.broken_models == ["b"], "the engine has no other configuration: it is not asked"
    assert agent.handle(queue(("g", "b", 1), hopeless=["b"])) == [], "its requests wait: they are refused by no node"
    beat, load, *_ = told(agent, A, B)
    assert isinstance(beat, Beat)
    assert beat.heartbeat.facts.broken_models == []
    assert load == Tell(LoadModel("b", B))


def test_requests_of_other_models_do_not_wait_behind_it() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A)
    actions = agent.handle(queue(("g", "b", 1), ("h", "c", 1), ("i", "a", 1)))
    assert actions[-1] == Pull("i", 4)
    assert broken(agent) == ["b", "c"]


def test_where_nobody_reads_a_configuration_the_engine_says_what_it_does_not_know() -> None:
    agent = make_agent("a", num_admittable=4)
    assert Tell(LoadModel("b")) in agent.handle(queue(("g", "b", 1)))
    agent.handle(UNKNOWN)
    assert broken(agent) == ["b"]


def test_a_name_that_stands_for_another_model_is_served_no_more_until_it_is_what_it_was() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A)
    told(agent, replace(A, source="other.gguf"), B)
    assert broken(agent) == ["a"]
    assert agent.models.broken["a"] == (
        "model 'a': its source changed; restart nodes and gateways, or give it another name"
    )
    assert agent.handle(queue(("g", "a", 1))) == [], "another node may have what it was"
    assert agent.handle(queue(("g", "a", 1), hopeless=["a"])) == [], "its file may be older than its gateway's"
    assert any(isinstance(action, Pull) for action in told(agent, A))
    assert broken(agent) == []


def test_what_changes_no_token_is_nothing_to_a_node() -> None:
    agent = make_agent("a")
    told(agent, A)
    told(agent, replace(A, aliases=("default",), max_model_len=128, reasoning="none"))
    assert broken(agent) == []


def test_a_model_that_has_gone_is_served_as_long_as_it_is_asked_for() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A, B)
    assert agent.heartbeat().facts.gone_models == []
    told(agent, B)
    assert broken(agent) == []
    assert agent.heartbeat().facts.gone_models == ["a"], "nobody has to load it for those who may come"
    assert any(isinstance(action, Pull) for action in agent.handle(queue(("g", "a", 1))))


def test_a_model_that_came_wrong_is_tried_again_as_it_is_corrected() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A)
    told(agent, A, replace(B, source="no such.gguf"))
    agent.handle(queue(("g", "b", 1)))
    agent.handle(ModelFailed("b", "no such.gguf does not exist"))
    assert broken(agent) == ["b"]
    assert Tell(LoadModel("b", B)) in told(agent, A, B), "nobody was ever served by what it was"
    assert broken(agent) == []


def test_a_model_that_came_is_from_its_load_on_what_it_was_then() -> None:
    agent = make_agent("a", num_admittable=4)
    other = replace(B, source="other.gguf")
    told(agent, A)
    told(agent, A, B)
    agent.handle(queue(("g", "b", 1)))
    told(agent, A, other)
    assert broken(agent) == [], "it is still being loaded"
    agent.handle(loaded("b"))
    assert broken(agent) == ["b"]
    told(agent, A)
    told(agent, A, other)
    assert broken(agent) == ["b"], "also where it had gone meanwhile"


def test_a_name_stays_what_it_was_when_the_engine_dies() -> None:
    record = ModelRecord()
    for number in range(2):
        agent = AgentCore("n0", f"n0.{number}", "cpu", OPTIONS, record=record)
        told(agent, replace(A, source="other.gguf") if number else A)
    assert broken(agent) == ["a"], "gateways and queue live on, with tokens for what it was"


def dying(record: ModelRecord, *models: ModelSpec) -> list[str]:
    """What an epoch finds broken whose engine dies while it loads ``b``, before it dies."""
    agent = AgentCore("n0", "n0.1", "cpu", OPTIONS, record=record)
    told(agent, *models)
    found = broken(agent)
    agent.handle(Load(node="n0", epoch="n0.1", model="b"))
    agent.models.engine_died()
    return found


def test_a_model_that_takes_one_engine_after_another_does_not_take_the_others_with_it() -> None:
    record = ModelRecord()
    assert [dying(record, A, B) for _ in range(4)] == [[], [], [], ["b"]]
    agent = AgentCore("n0", "n0.2", "cpu", OPTIONS, record=record)
    told(agent, A, B)
    assert agent.models.broken["b"] == (
        "model 'b' is not tried again here: 3 engines in a row died while they loaded it"
    )
    told(agent, A, B)
    assert broken(agent) == [], "its file, or the configuration's, has been looked at since"


def test_the_only_model_is_tried_again_and_again() -> None:
    record = ModelRecord()
    assert [dying(record, B) for _ in range(4)] == [[], [], [], []]


def test_a_load_that_succeeds_ends_a_row_of_deaths() -> None:
    record = ModelRecord()
    for _ in range(2):
        dying(record, A, B)
    agent = AgentCore("n0", "n0.2", "cpu", OPTIONS, record=record)
    told(agent, A, B)
    agent.handle(loaded("b"))
    assert [dying(record, A, B) for _ in range(3)] == [[], [], []]


def test_an_adapter_that_comes_or_goes_leaves_its_model_as_it_is() -> None:
    x, y = (AdapterSpec(name=name, source=name) for name in "xy")
    agent = make_agent("a")
    told(agent, replace(A, adapters=(x,)))
    for adapters in ((x, y), (y,), ()):
        told(agent, replace(A, adapters=adapters))
        assert broken(agent) == []
    told(agent, replace(A, adapters=(replace(x, source="other"),)))
    assert broken(agent) == []
    assert list(agent.models.adapters.broken["a"]) == ["x"], "it alone"


def take(agent: AgentCore, weights: str, adapter: str = "") -> list[Chunk]:
    """What a request for ``a`` is answered at once, whose gateway means this by it."""
    agent.handle(queue(("g", "a", 1)))
    payload = replace(payload_of("r"), weights=weights, adapter=adapter)
    actions = agent.handle(taken("g", 1, entry("r", payload=payload)))
    return [chunk for action in actions if isinstance(action, Publish) for chunk in action.tokens["gw"].chunks]


def test_tokens_that_are_for_other_weights_are_not_read() -> None:
    x, y, other_x = (AdapterSpec(name=name, source=source) for name, source in (("x", "x"), ("y", "y"), ("x", "z")))
    adapted = replace(A, adapters=(x,))
    changed = replace(adapted, source="other.gguf")
    moved = replace(adapted, source="/elsewhere/a.gguf")
    wrong = (
        (weights_mark(changed), ""),
        (weights_mark(changed, x), "x"),
        (weights_mark(adapted, other_x), "x"),
        (weights_mark(replace(adapted, weights="int8")), ""),
    )
    for weights, adapter in wrong:
        agent = make_agent("a", num_admittable=4)
        told(agent, adapted)
        (refused,) = take(agent, weights, adapter)
        assert refused.error == "model 'a' stands for other weights at this node than at the gateway; restart both"
    for weights, adapter in (
        (weights_mark(moved), ""),  # the same file, as another machine keeps it
        (weights_mark(moved, x), "x"),
        ("", ""),  # a gateway that does not say
        (weights_mark(adapted, y), "y"),  # it may come here, too
    ):
        agent = make_agent("a", num_admittable=4)
        told(agent, adapted)
        assert take(agent, weights, adapter) == []
        assert list(agent.running) == ["r"]


def test_kv_that_waits_for_a_request_goes_with_it_where_it_is_refused() -> None:
    agent = make_agent("a", num_admittable=1)
    told(agent, A)
    agent.handle(queue(("g", "a", 1)))
    agent.handle(taken("g", 1, entry("r")))
    agent.handle(step(tokens("r", 5), num_received=1))
    agent.handle(queue(("urgent", "a", 1), yielding=["g"]))
    agent.handle(evicted({"r": 2}, num_received=1))
    told(agent, replace(A, source="other.gguf"))
    agent.handle(queue(("g", "a", 1), hopeless=["a"]))
    actions = agent.handle(taken("g", 1, entry("r", kv_at="n0")))
    assert Tell(AbortRequests(["r"])) in actions
    assert agent.inventory().parked == []


def test_what_could_not_be_loaded_stays_so_whatever_comes_beside_it() -> None:
    agent = make_agent("a")
    told(agent, A, B)
    agent.handle(ModelFailed("b", "out of memory"))
    told(agent, A, B, ModelSpec(name="c", source="c.gguf"))
    assert broken(agent) == ["b"]


def test_who_was_queued_before_a_model_changed_does_not_wait_for_ever() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A)
    told(agent, replace(A, source="other.gguf"))
    agent.handle(AdaptersDue(10.0))
    assert agent.handle(queue(("g", "a", 1), hopeless=["a"])) == []
    assert agent.handle(AdaptersDue(11.0)) == [], "the time counts from when somebody asks"
    assert agent.handle(AdaptersDue(10.0 + FILE_WAIT_S)) == []
    assert any(isinstance(action, Pull) for action in agent.handle(AdaptersDue(11.0 + FILE_WAIT_S)))
    actions = agent.handle(taken("g", 64, entry("r")))
    (refused,) = [chunk for one in actions if isinstance(one, Publish) for chunk in one.tokens["gw"].chunks]
    assert refused.error == agent.models.broken["a"]
    agent.handle(queue())
    agent.handle(AdaptersDue(500.0))
    assert agent.handle(queue(("g", "a", 1), hopeless=["a"])) == [], "who comes now may have another file"


def test_a_model_that_is_served_no_more_and_lacks_an_adapter_keeps_no_other_from_being_served() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A, B)
    told(agent, replace(A, source="other.gguf", adapters=(AdapterSpec(name="x", source="x"),)), B)
    assert Tell(LoadModel("b", B)) in agent.handle(queue(("g", "b", 1)))


def test_what_was_read_of_a_half_written_file_is_not_held_to() -> None:
    agent = AgentCore("n0", "n0.1", "cpu", OPTIONS)
    x, whole = (AdapterSpec(name="x", source=source) for source in ("folders/", "folders/x"))
    agent.handle(Configured((replace(A, source="a", adapters=(x,)),), is_settled=False))
    told(agent, replace(A, adapters=(whole,)), B)
    assert (broken(agent), agent.models.adapters.broken) == ([], {})
    agent.handle(queue(("g", "b", 1)))
    told(agent, A, replace(B, source="other.gguf"))
    assert broken(agent) == ["b"], "this one was whole"


def test_of_models_that_come_and_go_those_that_went_last_are_told_and_known() -> None:
    agent = make_agent("a")
    names = [f"{MAX_GONE + 3 - number:03}" for number in range(MAX_GONE + 3)]  # the first is the last by name
    for name in names:
        told(agent, A, ModelSpec(name=name, source="m.gguf"))
        agent.handle(queue(awaits=name))
        agent.handle(loaded(name))
        agent.handle(StepReport([], stats(num_admittable=4, cost=StepCost(0.1, 0.0, 0.0))))
    told(agent, A)
    assert agent.heartbeat().facts.gone_models == sorted(names[-MAX_GONE:])
    assert sorted(rate.model for rate in agent.models.rates()) == sorted(names[-MAX_GONE:])
