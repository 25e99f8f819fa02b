"""Who is refused: whoever is likelier than not to miss a promise that says so."""

from __future__ import annotations

import pytest

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.waits.refusals import MIN_RETRY_AFTER_S, lateness_s
from shared.config.config import ClusterConfig
from shared.config.services.clients import SloClass
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Attempt, Pulled, Rejected, Submit
from shared.messages.requests.slo import Slo
from shared.service.core import Effect, Send

STRICT = Slo("strict", ttft_s=2.0)
CONFIG = ClusterConfig(slo_classes=ClusterConfig().slo_classes | {"strict": SloClass(ttft_s=2, late="refuse")})


def submit(name: str, slo: Slo = STRICT, attempt: int = 0, model: str = "a") -> Submit:
    return Submit(request_id=name, gateway="gw", model=model, slo=slo, prompt_tokens=1, max_tokens=10, attempt=attempt)


def make_core(*models: str) -> QueueManagerCore:
    """One node that holds ``a``, runs one request at a time, a token a second, and knows its rates for these models."""
    core = QueueManagerCore(CONFIG)
    rates = [ModelRate(model, StepCost(1.0, 0.0, 0.0), 1000, 16, 0.0 if model == "a" else 8.0) for model in models]
    core.handle(NodeUp(epoch="1", known=NodeState("n0", "a", max_num_seqs=1, rates=rates)), 0.0)
    return core


def fill(core: QueueManagerCore) -> None:
    core.handle(submit("first"), 0.0)
    core.handle(Pulled(node="n0", epoch="1", group="g0", requests=[Attempt("first", 0)]), 0.0)


def refusals(effects: list[Effect]) -> list[Rejected]:
    return [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Rejected)]


@pytest.mark.parametrize(
    ("slo", "late_s"),
    [
        (Slo("ttft", ttft_s=4.0), 1.0),
        (Slo("deadline", deadline_s=11.0), 9.0),
        (Slo("both", ttft_s=4.0, deadline_s=19.5), 1.0),
        (Slo("kept", ttft_s=5.0, deadline_s=20.0), 0.0),
        (Slo("none"), 0.0),
    ],
)
def test_a_promise_is_missed_by_its_worse_half(slo: Slo, late_s: float) -> None:
    assert lateness_s(slo, first_token_s=5.0, completion_s=20.0) == late_s


def test_a_request_that_would_start_too_late_is_refused_and_not_kept() -> None:
    core = make_core("a")
    fill(core)
    effects = core.handle(submit("second"), 0.0)
    (refusal,) = refusals(effects)
    assert effects[0] == Send("treadle:tokens:gw", refusal, to_existing=True)
    assert (refusal.request_id, refusal.attempt) == ("second", 0)
    assert refusal.wait_s > 2.0
    assert refusal.retry_after_s == max(MIN_RETRY_AFTER_S, refusal.wait_s - 2.0)
    assert list(core.state.requests) == ["first"]


def test_a_request_in_time_is_accepted() -> None:
    assert refusals(make_core("a").handle(submit("first"), 0.0)) == []


def test_other_classes_are_served_late() -> None:
    core = make_core("a")
    fill(core)
    assert refusals(core.handle(submit("second", Slo("interactive", deadline_s=2.0)), 0.0)) == []


def test_a_request_that_was_accepted_is_not_refused_later() -> None:
    core = make_core("a")
    fill(core)
    assert refusals(core.handle(submit("second", attempt=1), 0.0)) == []


def test_nothing_is_refused_on_a_guess() -> None:
    core = make_core()
    fill(core)
    assert refusals(core.handle(submit("second"), 0.0)) == []


def test_a_model_that_is_swapped_out_costs_its_swap() -> None:
    (refusal,) = refusals(make_core("a", "b").handle(submit("first", model="b"), 0.0))
    assert refusal.wait_s == pytest.approx(8.0 + 1.0), "the swap, and the step that gives the first token"
    patient = Slo("strict", ttft_s=9.5)
    assert refusals(make_core("a", "b").handle(submit("first", patient, model="b"), 0.0)) == []


def test_a_model_that_is_broken_everywhere_is_not_refused_but_answered_with_the_reason() -> None:
    core = QueueManagerCore(CONFIG)
    core.handle(NodeUp(epoch="1", known=NodeState("n0", "a", broken_models=["b"])), 0.0)
    assert refusals(core.handle(submit("first", model="b"), 0.0)) == []
