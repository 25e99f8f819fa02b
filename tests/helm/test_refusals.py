"""Values that make no cluster are refused, in words that name them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helm.chart import Chart

POOL = {"name": "cpu"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"redis": {"url": "redis://mine:6379"}}, ["redis.enabled: true runs a Redis"]),
        ({"modelStorage": {"reload": True}}, ["modelStorage.reload: pods fetch models only when they start"]),
        ({"redis": {"enabled": False}}, ["redis.enabled: false needs redis.existingSecret or redis.url"]),
        (
            {"redis": {"enabled": False, "url": "redis://r", "existingSecret": "s"}},
            ["redis.url: redis.existingSecret holds the address already"],
        ),
        (
            {"apiKeys": {"list": [{"key": "k", "tenant": "t"}], "existingSecret": "s"}, "redis": {"enabled": False}},
            ["2 of these values do not fit together", "redis.enabled", "apiKeys.list"],
        ),
        (
            {"redis": {"enabled": False, "existingSecret": "s", "auth": {"existingSecret": "p"}}},
            ["redis.auth: is for the Redis that is run here"],
        ),
        (
            {"redis": {"enabled": False, "url": "redis://r", "sentinel": {"addresses": ["s"]}}},
            ["2 of these values", "redis.sentinel: redis.url or redis.existingSecret holds", "redis.sentinel.service"],
        ),
        (
            {"redis": {"acl": {"enabled": True}, "auth": {"existingSecret": "p"}}},
            ["redis.auth: users have passwords of their own"],
        ),
        (
            {"redis": {"enabled": False, "url": "redis://r", "acl": {"enabled": True}}},
            ["redis.acl: one redis.url cannot be for several users"],
        ),
        (
            {"redis": {"enabled": False, "sentinel": {"addresses": ["s"], "service": "m"}, "acl": {"enabled": True}}},
            ["redis.acl.existingSecret: a Redis of yours knows the passwords"],
        ),
        ({"redis": {"tls": {"enabled": True}}}, ["redis.tls: needs redis.tls.existingSecret"]),
        ({"gpuNode": {"pools": [POOL, POOL]}}, ['gpuNode.pools.1.name: "cpu" is there twice']),
        (
            {"gpuNode": {"pools": [{**POOL, "node": {"executor": "cuda", "device": "cuda:1"}}]}},
            ["gpuNode.pools.0.node.device: a pod sees only the devices that it is given; set cuda:0"],
        ),
        (
            {"gpuNode": {"pools": [{**POOL, "node": {"engine": "vllm", "device": "cuda:0"}}]}},
            ["gpuNode.pools.0.image.repository: the image gpu-node-vllm is for processors; name one of yours"],
        ),
        ({"httpRoute": {"enabled": True}}, ["httpRoute.parentRefs"]),
        ({"cluster": {"batches": {"max_inflight": 9}}}, ["cluster.batches: nobody takes batches"]),
        ({"fullnameOverride": "LLM"}, ['fullnameOverride: services are called after "LLM"']),
        (
            {"gateway": {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 2}}},
            ["gateway.autoscaling: minReplicas (5) is above maxReplicas (2)"],
        ),
        # what follows is refused by the schema
        ({"gpuNode": {"pools": [{"name": "batches"}]}}, ["/gpuNode/pools/0/name"]),
        ({"commonLabels": {"app.kubernetes.io/name": "mine"}}, ["invalid propertyName 'app.kubernetes.io/name'"]),
        ({"gateway": {"podLabels": {"app.kubernetes.io/component": "mine"}}}, ["invalid propertyName"]),
        ({"redis": {"podLabels": {"app.kubernetes.io/instance": "mine"}}}, ["invalid propertyName"]),
        ({"gpuNode": {"podLabels": {"treadle/pool": "mine"}}}, ["invalid propertyName"]),
        ({"gateway": {"replica": 2}}, ["/gateway", "replica"]),
        ({"gpuNode": {"pools": [{"name": "gateway"}]}}, ["/gpuNode/pools/0/name"]),
        ({"gpuNode": {"pools": [{"name": "a-name-that-is-too-long"}]}}, ["/gpuNode/pools/0/name"]),
        ({"gpuNode": {"pools": []}}, ["/gpuNode/pools"]),
        ({"gpuNode": {"pools": [{**POOL, "node": {"name": "mine"}}]}}, ["/gpuNode/pools/0/node", "name"]),
        ({"gpuNode": {"pools": [{**POOL, "node": {"device": "tpu"}}]}}, ["/gpuNode/pools/0/node/device"]),
        ({"cluster": {"gateway": {"port": 1}}}, ["/cluster/gateway", "port"]),
        ({"cluster": {"scaling": {"provider": "docker"}}}, ["/cluster/scaling/provider"]),
        ({"models": []}, ["/models"]),
        ({"models": [{"name": "m"}]}, ["/models/0", "source"]),
        ({"modelStorage": {"kind": "nfs"}}, ["/modelStorage/kind"]),
        ({"tracing": {"endpoint": "otel:4318"}}, ["/tracing/endpoint"]),
        ({"redis": {"persistence": {"size": "much"}}}, ["/redis/persistence/size"]),
        ({"redis": {"sentinel": {"addresses": ["http://s"]}}}, ["/redis/sentinel/addresses/0"]),
        ({"cluster": {"durability": {"timeout_s": 60}}}, ["/cluster/durability/timeout_s"]),
    ],
)
def test_values_that_make_no_cluster_are_refused(chart: Chart, values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"(?s).+") as caught:
        chart.files(values)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def test_a_release_whose_name_is_none_of_a_service_is_refused(chart: Chart) -> None:
    with pytest.raises(ValueError, match=r'services are called after "team\.llm-treadle"'):
        chart.files({}, "team.llm")
