"""What an upgrade needs of the manifests: time to end, the new before the old, and a reason to begin."""

from __future__ import annotations

import pytest

from gpu_node.agent.process.engine_process import STOP_TIMEOUT_S
from gpu_node.agent.process.epoch import DRAIN_S
from tests.helm.chart import VALUES, WORKLOADS, Chart, cluster, of_kind, pod_templates, pools

every_case = pytest.mark.parametrize("name", VALUES)


@every_case
def test_pods_have_the_time_that_they_need_to_end(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    config = cluster(objects)
    for owner, pod in pod_templates(objects):
        grace_s = pod["spec"]["terminationGracePeriodSeconds"]
        if owner == "treadle-gateway":
            before_s = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert grace_s > before_s + config.gateway.drain_s
        if owner in pools(objects):
            assert grace_s > DRAIN_S + STOP_TIMEOUT_S


@every_case
def test_an_update_takes_nothing_away_before_something_new_is_there(chart: Chart, name: str) -> None:
    for found in of_kind(chart.objects(VALUES[name]), "Deployment").values():
        assert found["spec"]["strategy"] == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        }
    for found in pools(chart.objects(VALUES[name])).values():
        assert found["spec"]["updateStrategy"] == {"type": "RollingUpdate"}, "one pod at a time, the last first"


def test_what_a_pod_reads_restarts_it_when_it_changes(chart: Chart) -> None:
    def checksums(values: dict[str, object]) -> dict[str, dict[str, str]]:
        found = of_kind(chart.objects(values), *WORKLOADS)
        notes = {owner: one["spec"]["template"]["metadata"].get("annotations", {}) for owner, one in found.items()}
        return {owner: {key: text for key, text in note.items() if "checksum" in key} for owner, note in notes.items()}

    before = checksums({})
    after = checksums({"cluster": {"engine": {"block_size": 32}}})
    assert {owner for owner in before if before[owner] != after[owner]} == set(before) - {"treadle-redis"}
    rotated = checksums({"redis": {"enabled": False, "url": "redis://:1@r"}})
    again = checksums({"redis": {"enabled": False, "url": "redis://:2@r"}})
    assert {owner for owner in rotated if rotated[owner] != again[owner]} == set(rotated)


def test_other_keys_restart_nobody_since_gateways_read_them_again(chart: Chart) -> None:
    def templates(key: str) -> tuple[dict[str, object], object]:
        objects = chart.objects({"apiKeys": {"list": [{"key": key, "tenant": "a"}]}})
        found = {owner: one["spec"]["template"] for owner, one in of_kind(objects, *WORKLOADS).items()}
        return found, of_kind(objects, "Secret")

    (one, keys), (two, other_keys) = templates("sk-1"), templates("sk-2")
    assert one == two
    assert keys != other_keys
    mounts = one["treadle-gateway"]["spec"]["containers"][0]["volumeMounts"]  # type: ignore[index]
    (mount,) = [mount for mount in mounts if mount["name"] == "keys"]
    assert "subPath" not in mount, "a file that is mounted by itself is never renewed"


def test_other_models_restart_nobody_where_they_are_read_again(chart: Chart) -> None:
    def templates(*models: str, **storage: object) -> tuple[dict[str, object], object]:
        named = [{"name": name, "source": f"/models/{name}.gguf"} for name in models]
        objects = chart.objects({"models": named, "modelStorage": {"kind": "hostPath", **storage}})
        found = {owner: one["spec"]["template"] for owner, one in of_kind(objects, *WORKLOADS).items()}
        return found, of_kind(objects, "ConfigMap")

    (one, config), (two, other_config) = templates("a", reload=True), templates("a", "b", reload=True)
    assert one == two
    assert config != other_config
    assert templates("a")[0] != templates("a", "b")[0]
