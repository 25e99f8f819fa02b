"""Pools of nodes: StatefulSets that the cluster knows by name, and who may scale them."""

from __future__ import annotations

import pytest

from shared.config import NODE_ENV
from tests.helm.chart import POD_NAME, VALUES, Chart, cluster, environment, of_kind, pod_templates, pools

every_case = pytest.mark.parametrize("name", VALUES)


@every_case
def test_a_pool_is_a_stateful_set_of_its_name_so_pods_are_called_like_nodes(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    config = cluster(objects)
    assert config.nodes == []
    assert [pool.name for pool in config.pools] == list(pools(objects))
    for pool in config.pools:
        found = pools(objects)[pool.name]
        assert environment(found["spec"]["template"]["spec"]["containers"][0])[NODE_ENV] == POD_NAME
        scaled_by_us = config.scaling.provider == "kubernetes"
        assert found["spec"].get("replicas") == (None if scaled_by_us else pool.max_nodes)
        assert pool.ordinal(f"{pool.name}-{pool.max_nodes - 1}") == pool.max_nodes - 1


def test_pools_have_what_all_have_and_what_is_their_own(chart: Chart) -> None:
    found = {owner: one["spec"]["template"] for owner, one in pools(chart.objects(VALUES["gpu-pools"])).items()}
    resources = {owner: pod["spec"]["containers"][0]["resources"] for owner, pod in found.items()}
    assert resources == {
        "treadle-a10": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": 1}},
        "treadle-a100": {"requests": {"cpu": "8", "memory": "32Gi"}, "limits": {"memory": "32Gi", "nvidia.com/gpu": 1}},
        "treadle-cpu": {"requests": {"cpu": "8", "memory": "4Gi"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": 0}},
    }
    assert {pod["spec"]["runtimeClassName"] for pod in found.values()} == {"nvidia"}
    threads = {owner: environment(pod["spec"]["containers"][0])["OMP_NUM_THREADS"] for owner, pod in found.items()}
    assert threads == {"treadle-a10": "1", "treadle-a100": "1", "treadle-cpu": "8"}
    assert found["treadle-cpu"]["metadata"]["labels"]["tier"] == "cheap"


def test_a_scheduler_that_scales_may_ask_for_replicas_of_its_pools_and_for_nothing_else(chart: Chart) -> None:
    objects = chart.objects(VALUES["everything"])
    (role,) = of_kind(objects, "Role").values()
    assert role["rules"] == [
        {
            "apiGroups": ["apps"],
            "resources": ["statefulsets/scale"],
            "resourceNames": ["treadle-small", "treadle-spare"],
            "verbs": ["get", "patch"],
        }
    ]
    (binding,) = of_kind(objects, "RoleBinding").values()
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    pods = dict(pod_templates(objects))
    accounts = {owner: pod["spec"]["serviceAccountName"] for owner, pod in pods.items()}
    assert [owner for owner, account in accounts.items() if account == subject["name"]] == ["treadle-scheduler"]


def test_nobody_may_do_anything_where_nobody_scales(chart: Chart) -> None:
    for name in VALUES.keys() - {"everything"}:
        assert of_kind(chart.objects(VALUES[name]), "Role", "RoleBinding") == {}
