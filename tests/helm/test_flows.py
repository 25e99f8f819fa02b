"""Network policies let through what the cluster says to itself, and nothing else."""

from __future__ import annotations

from tests.helm.chart import VALUES, Chart, of_kind, pod_templates
from tests.helm.reach import flows, ports_outside

DNS = {(53, "UDP"), (53, "TCP")}
BATCHES = "treadle-batches"
NODES = ["treadle-small", "treadle-spare"]
SERVICES = ["treadle-queue-manager", "treadle-scheduler", "treadle-kv-manager"]


def test_the_components_meet_in_redis_batches_at_the_gateway_and_nodes_at_nodes(chart: Chart) -> None:
    """Where Prometheus is known: else any pod may ask for metrics, those of the release too."""
    objects = chart.objects(VALUES["everything"])
    processes = ["treadle-gateway", *SERVICES, BATCHES, *NODES]
    assert flows(objects) == {
        *((process, "treadle-redis", "redis") for process in processes),
        ("treadle-test", "treadle-gateway", "http"),
        ("treadle-gateway", BATCHES, "admin"),  # files are too large for Redis
        (BATCHES, "treadle-gateway", "http"),
        *((node, other, "admin") for node in NODES for other in NODES),  # so is KV
    }


def test_every_pod_is_told_what_it_may_do(chart: Chart) -> None:
    for name, values in VALUES.items():
        objects = chart.objects(values)
        owners = {owner for owner, _ in pod_templates(objects)} - {"treadle-test"}
        policies = of_kind(objects, "NetworkPolicy").values()
        found = {
            owner
            for owner, pod in pod_templates(objects)
            for policy in policies
            if policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        }
        assert found == (set() if name == "least" else owners), name
        assert all(policy["spec"]["policyTypes"] == ["Ingress", "Egress"] for policy in policies)


def test_outside_are_names_models_traces_and_the_api_server(chart: Chart) -> None:
    default = chart.objects({})
    assert ports_outside(default, "treadle-gateway") == ports_outside(default, "treadle-cpu") == DNS | {(443, "TCP")}
    assert all(ports_outside(default, service) == DNS for service in SERVICES)
    assert ports_outside(default, "treadle-redis") == set()
    everything = chart.objects(VALUES["everything"])
    traces = {(4318, "TCP")}
    assert ports_outside(everything, "treadle-queue-manager") == DNS | traces
    assert ports_outside(everything, "treadle-scheduler") == DNS | traces | {(443, "TCP")}


def test_without_download_nobody_fetches_models(chart: Chart) -> None:
    assert ports_outside(chart.objects(VALUES["gpu-pools"]), "treadle-a10") == DNS


def test_a_redis_of_ones_own_is_outside(chart: Chart) -> None:
    objects = chart.objects(VALUES["own-redis"])
    assert ports_outside(objects, "treadle-kv-manager") == DNS | {(6380, "TCP"), (443, "TCP")}, "443: traces, by https"


def test_ports_in_the_address_of_a_redis_of_ones_own_are_let_through(chart: Chart) -> None:
    for url, ports in (
        ("redis://user:pass:word%40@r", {6379}),
        ("redis://:12345@a:7000,b:7001,c/0", {6379, 7000, 7001}),
        ("rediss+sentinel://[fd00::1]:26380/master/0", {6379, 26380}),
    ):
        objects = chart.objects({"redis": {"enabled": False, "url": url}})
        assert ports_outside(objects, "treadle-kv-manager") == DNS | {(port, "TCP") for port in ports}, url


def test_where_nobody_may_read_metrics_nobody_reaches_a_service(chart: Chart) -> None:
    objects = chart.objects(VALUES["own-redis"])
    for service in SERVICES:
        assert of_kind(objects, "NetworkPolicy")[service]["spec"]["ingress"] == []
    assert {destination for _, destination, _ in flows(objects)} == {"treadle-gateway", "treadle-cpu"}


def test_who_may_reach_the_gateway(chart: Chart) -> None:
    policy = of_kind(chart.objects({}), "NetworkPolicy")["treadle-gateway"]
    assert policy["spec"]["ingress"] == [
        {"ports": [{"port": "http"}]},  # everybody
        {"ports": [{"port": "admin"}], "from": [{"namespaceSelector": {}}]},
    ]
    policy = of_kind(chart.objects(VALUES["everything"]), "NetworkPolicy")["treadle-gateway"]
    clients, metrics = policy["spec"]["ingress"]
    for rule, port, name in ((clients, "http", "ingress"), (metrics, "admin", "monitoring")):
        assert rule["ports"] == [{"port": port}]
        peers = [peer["namespaceSelector"]["matchLabels"] for peer in rule["from"] if "namespaceSelector" in peer]
        assert peers == [{"kubernetes.io/metadata.name": name}]
