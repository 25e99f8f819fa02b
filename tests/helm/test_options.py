"""Every option does something, and leaves the chart in order."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from helm.__main__ import SCHEMA
from helm.readme import leaves
from tests.helm.chart import DEFAULTS, FOLDER, VALUES, Chart, cluster, of_kind, with_value
from tests.helm.kubernetes import VERSIONS, problems

OPTIONS: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER.parent / "options.yaml").read_text("utf-8"))
CASES = [(case, path, value) for case, options in OPTIONS.items() for path, value in options.items()]
# a Redis of one's own is said in two values
TOGETHER: dict[tuple[str, str], dict[str, Any]] = {
    ("least", "redis.enabled"): {"redis.existingSecret": ""},
    ("default", "redis.tls.enabled"): {"redis.tls.existingSecret": "redis-certificates"},
}
OF_ALL_POOLS = sorted(path for path in OPTIONS["default"] if path.startswith("gpuNode.") and path != "gpuNode.pools")


def test_every_option_is_tried() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    tried = [path for options in OPTIONS.values() for path in options]
    options = {path for path, _, _ in leaves(schema, DEFAULTS, schema)}
    assert sorted(tried) == sorted(options)


@pytest.mark.parametrize(("case", "path", "value"), CASES, ids=[path for _, path, _ in CASES])
def test_an_option_changes_something_and_breaks_nothing(chart: Chart, case: str, path: str, value: Any) -> None:
    values = with_value(VALUES[case], path, value)
    for other, text in TOGETHER.get((case, path), {}).items():
        values = with_value(values, other, text)
    before, objects = chart.objects(VALUES[case]), chart.objects(values)
    changed = [found for found in objects if found not in before]
    assert changed or len(objects) < len(before)
    assert [problem for found in changed for problem in problems(found, VERSIONS[-1])] == []
    cluster(objects)


@pytest.mark.parametrize("path", OF_ALL_POOLS)
def test_a_pool_may_differ_in_whatever_all_have_in_common(chart: Chart, path: str) -> None:
    value = OPTIONS["default"][path]
    pools: list[dict[str, Any]] = [{"name": "plain"}, {"name": "own"}]
    before = chart.objects({"gpuNode": {"pools": pools}})
    own = with_value(pools[1], path.removeprefix("gpuNode."), value)
    after = chart.objects({"gpuNode": {"pools": [pools[0], own]}})
    changed = [
        kind + found["metadata"]["name"]
        for kind in ("StatefulSet", "PodDisruptionBudget")
        for found in of_kind(before, kind).values()
        if of_kind(after, kind).get(found["metadata"]["name"]) != found
    ]
    assert changed == [("PodDisruptionBudget" if "podDisruptionBudget" in path else "StatefulSet") + "treadle-own"]
