"""What clients are told while models come and go, and what nodes are told of the weights that are meant."""

from __future__ import annotations

from pathlib import Path

from gateway.models.models import load_models
from gateway.workers.served_models import ServedModels
from shared.config.config import ClusterConfig
from shared.config.engines.model_changes import weights_mark
from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.http.test_refusals import refused
from tests.gateway.memory_queue import saying

BODY = {"prompt": "x"}


async def test_a_model_that_takes_no_requests_now_is_503_with_the_reason(
    start_gateway: GatewayFactory, tiny_file: Path
) -> None:
    models = [{"name": "tiny", "source": str(tiny_file), "aliases": ["small"]}]
    config = ClusterConfig.model_validate({"models": models})
    served = ServedModels(load_models(config))
    gateway = await start_gateway(saying("Hello!"), served=served)
    served.withheld = dict.fromkeys(served, "model 'tiny': its source changed")
    served.replace({})
    for name in ("tiny", "small"):
        status, error, headers = await refused(gateway, "/v1/completions", BODY | {"model": name})
        assert (status, error["message"]) == (503, "model 'tiny': its source changed")
        assert "Retry-After" in headers
    status, error, _ = await refused(gateway, "/tokenize", BODY)
    assert (status, error["code"]) == (400, "missing_required_parameter"), "there is none that could be meant"


async def test_nodes_hear_which_weights_are_meant(start_gateway: GatewayFactory, tiny_file: Path) -> None:
    models = [
        {
            "name": "tiny",
            "source": str(tiny_file),
            "aliases": ["small"],
            "adapters": [{"name": "adapted", "source": str(tiny_file.parent)}],
        }
    ]
    gateway = await start_gateway(models=models)
    (spec,) = ClusterConfig.model_validate({"models": models}).models
    (adapted,) = spec.adapters
    for name, adapter in (("tiny", None), ("small", None), ("adapted", adapted)):
        async with sending(gateway.http.post("/v1/completions", json=BODY | {"model": name})):
            submit = await gateway.queue.next_submit()
            assert gateway.queue.payloads[submit.request_id].weights == weights_mark(spec, adapter) != ""
        await gateway.queue.next_cancel()
