"""Pools of nodes: StatefulSets that the cluster knows by name, and who may scale them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.config import NODE_ENV
from tests.helm.chart import POD_NAME, VALUES, Chart, cluster, environment, of_kind, pod_templates, pools

ROOT = Path(__file__).parents[2]
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
        "treadle-a100": {"requests": {"cpu": "8", "memory": "32Gi"}, "limits": {"memory": "32Gi", "nvidia.com/gpu": 2}},
        "treadle-cpu": {"requests": {"cpu": "8", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
    }
    assert {pod["spec"]["runtimeClassName"] for pod in found.values()} == {"nvidia"}
    threads = {owner: environment(pod["spec"]["containers"][0])["OMP_NUM_THREADS"] for owner, pod in found.items()}
    assert threads == {"treadle-a10": "1", "treadle-a100": "1", "treadle-cpu": "8"}
    assert found["treadle-cpu"]["metadata"]["labels"]["tier"] == "cheap"


def test_who_owns_devices_has_their_image_a_place_for_kernels_and_memory_to_share(chart: Chart) -> None:
    found = {owner: one["spec"]["template"]["spec"] for owner, one in pools(chart.objects(VALUES["gpu-pools"])).items()}
    images = {owner: pod["containers"][0]["image"].partition(":")[0] for owner, pod in found.items()}
    cuda = "treadle/gpu-node-cuda"
    assert images == {"treadle-a10": cuda, "treadle-a100": cuda, "treadle-cpu": "treadle/gpu-node"}
    mounts = {
        owner: {
            one["mountPath"]: volume["emptyDir"]
            for one in pod["containers"][0]["volumeMounts"]
            for volume in pod["volumes"]
            if volume["name"] == one["name"] and "emptyDir" in volume and one["mountPath"] != "/tmp"
        }
        for owner, pod in found.items()
    }
    kernels = {"/var/cache/treadle": {"sizeLimit": "1Gi"}}
    assert mounts == {
        "treadle-a10": kernels,
        "treadle-a100": kernels | {"/dev/shm": {"medium": "Memory", "sizeLimit": "1Gi"}},
        "treadle-cpu": {},
    }
    assert "TRITON_CACHE_DIR=/var/cache/treadle" in (ROOT / "gpu-node" / "Dockerfile.cuda").read_text("utf-8")


def test_each_node_with_an_ssd_tier_has_a_claim_where_its_folder_is(chart: Chart) -> None:
    tiers = {"host_bytes": 1 << 30, "ssd_bytes": 1 << 34, "ssd_folder": "/kv"}
    own = {"name": "own", "kvStorage": {"size": "1Ti", "storageClassName": "nvme"}}
    objects = chart.objects({"cluster": {"engine": {"tiers": tiers}}, "gpuNode": {"pools": [{"name": "cpu"}, own]}})
    for name, spec in (("cpu", {}), ("own", {"storageClassName": "nvme"})):
        found = pools(objects)[f"treadle-{name}"]["spec"]
        (claim,) = found["volumeClaimTemplates"]
        size = "1Ti" if name == "own" else "100Gi"
        requested = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        assert claim == {"metadata": {"name": "kv"}, "spec": requested | spec}
        mounts = found["template"]["spec"]["containers"][0]["volumeMounts"]
        assert [one["mountPath"] for one in mounts if one["name"] == "kv"] == ["/kv"]
    assert all("volumeClaimTemplates" not in one["spec"] for one in pools(chart.objects({})).values())


def test_a_pool_with_vllm_has_memory_to_share_and_its_devices(chart: Chart) -> None:
    node = {"engine": "vllm", "device": "cuda:0", "vllm": {"python": "/opt/vllm/bin/python", "args": []}}
    pool = {"name": "other", "node": node, "image": {"repository": "own/vllm"}, "startupSeconds": 1200}
    objects = chart.objects({"gpuNode": {"pools": [pool]}})
    (found,) = pools(objects).values()
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"].startswith("own/vllm:")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    memory = [volume["name"] for volume in pod["volumes"] if volume.get("emptyDir", {}).get("medium") == "Memory"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert [mounts["/dev/shm"]] == memory
    assert "/var/cache/treadle" in mounts
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= 1200
    (told,) = cluster(objects).pools
    assert (told.kind, str(told.vllm_options.python)) == ("vllm", "/opt/vllm/bin/python")


def test_a_pool_with_vllm_on_processors_has_its_image_and_its_interpreter(chart: Chart) -> None:
    objects = chart.objects({"gpuNode": {"pools": [{"name": "other", "node": {"engine": "vllm", "num_threads": 4}}]}})
    (found,) = pools(objects).values()
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"].startswith("treadle/gpu-node-vllm:")
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    (memory,) = [volume for volume in pod["volumes"] if volume.get("emptyDir", {}).get("medium") == "Memory"]
    assert {one["mountPath"]: one["name"] for one in container["volumeMounts"]}["/dev/shm"] == memory["name"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    (told,) = cluster(objects).pools
    folder = "/opt/treadle/bin"
    assert (told.kind, str(told.vllm_options.python)) == ("vllm", f"{folder}/python")
    assert f"PATH={folder}:$PATH" in (ROOT / "gpu-node" / "Dockerfile.vllm").read_text("utf-8")


def test_a_pool_may_be_given_its_devices_by_another_name(chart: Chart) -> None:
    pool = {
        "name": "mig",
        "node": {"executor": "cuda", "device": "cuda:0"},
        "resources": {"limits": {"nvidia.com/gpu": 0, "nvidia.com/mig-3g.71gb": 1}},
        "image": {"repository": "own/node"},
    }
    (found,) = pools(chart.objects({"gpuNode": {"pools": [pool]}})).values()
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": 0, "nvidia.com/mig-3g.71gb": 1}
    assert container["image"].startswith("own/node:")


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
