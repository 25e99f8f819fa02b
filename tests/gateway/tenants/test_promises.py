from __future__ import annotations

import pytest

from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.schema import SloChoice
from gateway.tenants.auth import ANYONE, Client, KeyRing
from gateway.tenants.promises import choose_promise
from shared.config.config import ClusterConfig
from shared.config.services.clients import ApiKey
from shared.messages.requests.slo import Slo

CONFIG = ClusterConfig.model_validate(
    {
        "slo_classes": {
            "interactive": {"deadline_s": 20, "queue_ttl_s": 5},
            "chat": {"ttft_s": 2, "tpot_s": 0.1},
            "batch": {"deadline_s": 3600},
        }
    }
)
BATCH_ONLY = Client(tenant="acme", slo_classes=("batch",))
CHAT_ONLY = Client(tenant="acme", slo_classes=("chat",))


def test_the_body_goes_before_the_header_and_the_header_before_the_default() -> None:
    wish = SloChoice(class_name="batch")
    assert choose_promise(CONFIG, ANYONE, wish, "chat").slo.name == "batch"
    assert choose_promise(CONFIG, ANYONE, None, "chat").slo == Slo(name="chat", ttft_s=2, tpot_s=0.1)
    default = choose_promise(CONFIG, ANYONE, None, None)
    assert (default.slo.name, default.queue_ttl_s) == ("interactive", 5)


def test_numbers_make_a_custom_promise_with_the_default_time_to_live() -> None:
    promise = choose_promise(CONFIG, ANYONE, SloChoice(ttft_s=1.5), "batch")
    assert promise.slo == Slo(name="custom", ttft_s=1.5)
    assert promise.queue_ttl_s == 5


def test_a_limited_key_gets_its_first_class_by_default() -> None:
    assert choose_promise(CONFIG, BATCH_ONLY, None, None).slo.name == "batch"


@pytest.mark.parametrize(
    ("client", "wish"),
    [
        (BATCH_ONLY, SloChoice(deadline_s=3600)),
        (BATCH_ONLY, SloChoice(ttft_s=4000, deadline_s=4000)),
        (CHAT_ONLY, SloChoice(ttft_s=2, tpot_s=0.2)),
    ],
)
def test_a_limited_key_may_ask_for_less_than_its_classes_promise(client: Client, wish: SloChoice) -> None:
    assert choose_promise(CONFIG, client, wish, None).slo.name == "custom"


@pytest.mark.parametrize(
    ("client", "wish"),
    [
        (BATCH_ONLY, SloChoice(class_name="interactive")),
        (BATCH_ONLY, SloChoice(deadline_s=3599)),
        (BATCH_ONLY, SloChoice(ttft_s=1)),
        (BATCH_ONLY, SloChoice(deadline_s=3600, tpot_s=1)),
        (CHAT_ONLY, SloChoice(deadline_s=10)),
        (Client(tenant="acme", slo_classes=()), None),
    ],
)
def test_a_limited_key_may_not_ask_for_more(client: Client, wish: SloChoice | None) -> None:
    with pytest.raises(ApiError) as error:
        choose_promise(CONFIG, client, wish, None)
    assert (error.value.status, error.value.code, error.value.param) == (403, "slo_not_allowed", "slo")


def test_an_unknown_class_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ApiError, match="'gold' is no SLO class; there are: interactive, chat, batch") as error:
        choose_promise(CONFIG, ANYONE, SloChoice(class_name="gold"), None)
    assert (error.value.status, error.value.param) == (400, "slo")


def test_what_stands_in_a_wrong_header_is_not_repeated() -> None:
    with pytest.raises(ApiError, match=r"^'x-treadle-slo' names no SLO class; there are: interactive, chat, batch$"):
        choose_promise(CONFIG, ANYONE, None, "sk-secret")


KEYS = KeyRing([ApiKey(key="k1", tenant="acme"), ApiKey(key="k2", tenant="loom", slo_classes=["batch"])])  # type: ignore[arg-type]


def test_a_key_says_who_its_holder_is() -> None:
    assert KEYS.authenticate({"Authorization": "Bearer k1"}) == Client("acme", None)
    assert KEYS.authenticate({"Authorization": "bearer  k2"}) == Client("loom", ("batch",))
    assert KEYS.authenticate({"x-api-key": " k2"}) == Client("loom", ("batch",))
    assert KEYS.authenticate({"x-api-key": "k2", "Authorization": "Bearer k1"}) == Client("acme", None)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer "}, {"Authorization": "Basic k1"}, {"Authorization": "Bearer k3"},
     {"Authorization": "Bearer k\udcff"}, {"x-api-key": "k3"}, {"x-api-key": "Bearer k1"},
     {"x-api-key": "k1", "Authorization": "Bearer k3"}, {"x-api-key": "k1", "Authorization": "Basic k1"}],
)  # fmt: skip
def test_nobody_else_gets_in(headers: dict[str, str]) -> None:
    with pytest.raises(ApiError) as error:
        KEYS.authenticate(headers)
    assert (error.value.status, error.value.code) == (401, "invalid_api_key")


def test_without_keys_everybody_is_the_default_tenant() -> None:
    assert KeyRing([]).authenticate({}) == ANYONE


def test_keys_are_not_kept() -> None:
    assert b"k1" not in repr(vars(KEYS)).encode()
