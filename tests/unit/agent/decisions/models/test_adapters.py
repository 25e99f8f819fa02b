"""What a node makes of adapters that come to the configuration, leave it, or change there, while their model serves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.agent.decisions.actions import Ack, AdaptersDue, AgentAction, Beat, Configured, Publish, Pull, Tell
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.intake.awaited_adapters import MAX_AWAITING
from gpu_node.agent.decisions.models.node_adapters import FILE_WAIT_S, RETRY_S
from gpu_node.engine.process.protocol.protocol import AbortRequests, EngineReady, LoadModel, ModelFailed, RunAttempt
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.messages.requests.requests import Abort, Attempt, EvictedRequest, FinishedRequest
from tests.unit.agent.events import EPOCH, OPTIONS, entry, loaded, make_agent, queue, step, taken, tokens

LEGAL, RHYMES = (AdapterSpec(name, f"folders/{name}") for name in ("legal", "rhymes"))
A = ModelSpec(name="a", source="a.gguf")


def having(*adapters: AdapterSpec) -> Configured:
    return Configured((replace(A, adapters=adapters),))


def load(*adapters: AdapterSpec) -> Tell:
    return Tell(LoadModel("a", replace(A, adapters=adapters)))


def without_beats(actions: list[AgentAction]) -> list[AgentAction]:
    return [action for action in actions if not isinstance(action, Beat)]


@pytest.fixture
def agent() -> AgentCore:
    """Its model has an adapter, and its engine room for eight."""
    agent = AgentCore("n0", EPOCH, "cpu", OPTIONS)
    agent.handle(having(LEGAL))
    agent.handle(loaded("a", adapters=("legal",)))
    agent.handle(step(num_admittable=8))
    return agent


def pulled(agent: AgentCore, name: str, adapter: str = "") -> list[AgentAction]:
    """A request comes, and the group is empty then."""
    agent.handle(queue(("g", "a", 1)))
    actions = without_beats(agent.handle(taken("g", 8, entry(name, adapter=adapter))))
    agent.intake.check()
    return actions


def begun(actions: list[AgentAction]) -> list[str]:
    return [
        action.command.payload.request_id
        for action in actions
        if isinstance(action, Tell) and isinstance(action.command, RunAttempt)
    ]


def errors(actions: list[AgentAction]) -> dict[str, str]:
    told = [sent for one in actions if isinstance(one, Publish) for sent in one.tokens.values()]
    return {chunk.request_id: chunk.error for sent in told for chunk in sent.chunks}


def refused(adapter: str) -> str:
    return f"'a' has no adapter {adapter!r} at this node that can be used"


def test_an_idle_node_loads_what_comes_at_once(agent: AgentCore) -> None:
    assert without_beats(agent.handle(having(LEGAL, RHYMES))) == [load(LEGAL, RHYMES)]
    assert agent.handle(queue(("g", "a", 1))) == [], "nothing is pulled meanwhile"
    agent.handle(loaded("a", 0.0, adapters=("legal", "rhymes")))
    assert agent.handle(step(num_admittable=8)) == [Pull("g", 8)]
    assert begun(pulled(agent, "r", "rhymes")) == ["r"]
    assert agent.models.adapters.loaded("a") == ("legal", "rhymes")


def test_a_busy_node_loads_it_when_a_request_needs_it(agent: AgentCore) -> None:
    assert begun(pulled(agent, "r1", "legal")) == ["r1"]
    assert without_beats(agent.handle(having(LEGAL, RHYMES))) == []
    assert pulled(agent, "r2", "rhymes") == [load(LEGAL, RHYMES)]
    assert begun(agent.handle(loaded("a", 0.0, adapters=("legal", "rhymes")))) == ["r2"]


def test_what_leaves_is_loaded_as_long_as_requests_are_for_it(agent: AgentCore) -> None:
    pulled(agent, "r1", "legal")
    agent.handle(having())
    assert begun(pulled(agent, "r2", "legal")) == ["r2"], "who was in flight is answered"
    agent.handle(having(RHYMES))
    assert pulled(agent, "r3", "rhymes") == [load(RHYMES, LEGAL)]
    agent.handle(loaded("a", 0.0, adapters=("rhymes", "legal")))
    for name in ("r1", "r2", "r3"):
        agent.handle(step(tokens(name, 7, is_last=True)))
    agent.handle(having(RHYMES, AdapterSpec("poems", "folders/poems")))
    assert agent.models.loading == "a"
    assert agent.models.adapters.wanted("a", ()) == (RHYMES, AdapterSpec("poems", "folders/poems"))


def test_one_that_is_gone_is_loaded_again_for_who_waits_for_it(agent: AgentCore) -> None:
    agent.handle(having(RHYMES))
    agent.handle(loaded("a", 0.0, adapters=("rhymes",)))
    agent.handle(step(num_admittable=8))
    assert pulled(agent, "r", "legal") == [load(RHYMES, LEGAL)], "a gateway that has not heard yet has sent it"


def test_a_request_whose_adapter_is_not_configured_here_yet_waits_and_holds_nobody_up(agent: AgentCore) -> None:
    assert pulled(agent, "early", "rhymes") == []
    assert begun(pulled(agent, "other")) == ["other"]
    assert without_beats(agent.handle(having(LEGAL, RHYMES))) == [load(LEGAL, RHYMES)]
    assert begun(agent.handle(loaded("a", 0.0, adapters=("legal", "rhymes")))) == ["early"]
    agent.intake.check()


def test_who_comes_when_others_have_waited_in_vain_does_not_wait_too(agent: AgentCore) -> None:
    """Else crowd after crowd would keep the node from pulling for anybody."""
    pulled(agent, "first", "rhymes")
    agent.handle(AdaptersDue(100.0))
    pulled(agent, "second", "rhymes")
    assert errors(agent.handle(AdaptersDue(100.0 + FILE_WAIT_S))) == dict.fromkeys(
        ("first", "second"), refused("rhymes")
    )
    assert errors(pulled(agent, "third", "rhymes")) == {"third": refused("rhymes")}
    agent.handle(having(LEGAL))  # its file has changed
    assert pulled(agent, "fourth", "rhymes") == [], "it may come with the next"
    agent.handle(having(LEGAL, RHYMES))
    agent.handle(loaded("a", 0.0, adapters=("legal", "rhymes")))
    assert "fourth" in agent.running


def test_it_does_not_wait_for_ever(agent: AgentCore) -> None:
    pulled(agent, "early", "rhymes")
    assert agent.handle(AdaptersDue(100.0)) == []
    assert agent.handle(AdaptersDue(99.0 + FILE_WAIT_S)) == []
    abort, publish = agent.handle(AdaptersDue(100.0 + FILE_WAIT_S))
    assert abort == Tell(AbortRequests(["early"])), "KV that was kept for it is of no use"
    assert isinstance(publish, Publish)
    assert errors([publish]) == {"early": refused("rhymes")}
    assert publish.finished == [FinishedRequest("early", 0, "refused", 0)]
    assert publish.acks == [Ack("g", b"early-0")]
    assert agent.running == {}


def test_one_that_becomes_known_in_time_is_not_refused(agent: AgentCore) -> None:
    pulled(agent, "early", "rhymes")
    agent.handle(AdaptersDue(0.0))
    agent.handle(having(LEGAL, RHYMES))
    assert errors(agent.handle(AdaptersDue(FILE_WAIT_S))) == {}
    assert begun(agent.handle(loaded("a", 0.0, adapters=("legal", "rhymes")))) == ["early"]


def test_a_node_that_watches_no_file_refuses_what_it_does_not_know() -> None:
    agent = make_agent("a", num_admittable=8)
    assert errors(pulled(agent, "r", "legal")) == {"r": refused("legal")}
    agent.handle(loaded("a", adapters=("legal",)))
    agent.handle(step(num_admittable=8))
    assert begun(pulled(agent, "s", "legal")) == ["s"]


def test_with_many_that_wait_nothing_more_is_pulled(agent: AgentCore) -> None:
    agent.handle(queue(("g", "a", 100)))
    early = [entry(str(number), adapter="rhymes") for number in range(MAX_AWAITING)]
    agent.handle(taken("g", MAX_AWAITING, *early))
    assert agent.handle(queue(("g", "a", 36))) == []
    assert Pull("g", 8) in agent.handle(Abort(requests=[Attempt("7", 0)]))
    agent.intake.check()


def test_who_waits_is_given_back_where_another_model_comes(agent: AgentCore) -> None:
    pulled(agent, "early", "rhymes")
    _, publish, *_ = without_beats(agent.handle(loaded("b", tiers={"a": "device"})))
    assert isinstance(publish, Publish)
    assert publish.evicted == [EvictedRequest("early", 0, 0, 0, "n0")]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_name_that_stands_for_another_adapter_is_refused_while_the_others_are_served(
    agent: AgentCore, *, is_away: bool
) -> None:
    if is_away:
        agent.handle(having())
    agent.handle(having(replace(LEGAL, source="folders/other")))
    assert agent.heartbeat().facts.broken_models == []
    problem = "adapter 'legal' of model 'a': its source changed; restart nodes and gateways, or give it another name"
    assert agent.models.adapters.broken == {"a": {"legal": problem}}
    assert errors(pulled(agent, "r", "legal")) == {"r": refused("legal")}
    assert begun(pulled(agent, "s")) == ["s"]
    agent.handle(having(LEGAL))
    assert begun(pulled(agent, "t", "legal")) == ["t"], "it is again what it was"


def test_one_that_cannot_be_used_is_refused_and_tried_again(agent: AgentCore) -> None:
    agent.handle(having(LEGAL, RHYMES))
    broken = {"rhymes": "folders/rhymes does not exist"}
    assert without_beats(agent.handle(loaded("a", 0.0, adapters=("legal",), broken_adapters=broken))) == []
    assert agent.models.adapters.broken == {"a": broken}
    agent.handle(step(num_admittable=8))
    assert errors(pulled(agent, "r", "rhymes")) == {"r": refused("rhymes")}
    assert begun(pulled(agent, "s", "legal")) == ["s"]
    assert agent.handle(AdaptersDue(100.0)) == []
    assert agent.handle(AdaptersDue(100.0 + RETRY_S)) == [], "somebody runs, and nobody asks"
    assert pulled(agent, "t", "rhymes") == [load(LEGAL, RHYMES)]
    assert begun(agent.handle(loaded("a", 0.0, adapters=("legal", "rhymes")))) == ["t"]


def test_who_waits_for_one_that_turns_out_broken_hears_why(agent: AgentCore) -> None:
    pulled(agent, "busy")
    agent.handle(having(LEGAL, RHYMES))
    assert pulled(agent, "r", "rhymes") == [load(LEGAL, RHYMES)]
    broken = {"rhymes": "it is of another model"}
    assert errors(agent.handle(loaded("a", 0.0, adapters=("legal",), broken_adapters=broken))) == {
        "r": refused("rhymes")
    }


def test_a_model_that_cannot_take_more_is_served_as_it_is(agent: AgentCore) -> None:
    agent.handle(having(LEGAL, RHYMES))
    assert without_beats(agent.handle(ModelFailed("a", "no room on the device"))) == []
    assert agent.heartbeat().facts.broken_models == []
    assert agent.models.adapters.broken == {"a": {"rhymes": "no room on the device"}}
    assert begun(pulled(agent, "r", "legal")) == ["r"]


def test_a_model_that_is_loaded_anew_has_those_of_now(agent: AgentCore) -> None:
    agent.handle(loaded("b", tiers={"a": "host"}))
    agent.handle(having(RHYMES))
    assert load(RHYMES) in agent.handle(queue(("g", "a", 1)))


def test_an_engine_that_adds_none_says_so_and_serves_the_others(agent: AgentCore) -> None:
    agent.handle(EngineReady("cpu", "vllm", has_fixed_adapters=True))
    assert without_beats(agent.handle(having(LEGAL, RHYMES))) == []
    problem = "'a' was loaded without adapter 'rhymes', and this node's engine adds none: restart the node"
    assert agent.models.adapters.broken == {"a": {"rhymes": problem}}
    assert errors(pulled(agent, "r", "rhymes")) == {"r": refused("rhymes")}
    assert begun(pulled(agent, "s", "legal")) == ["s"]
