"""`treadle up`, `status` and `down` with a real Redis and stand-ins for the other processes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
from pathlib import Path

import psutil
import redis

from shared.processes.process_record import is_running
from tests.cli.conftest import Cluster

NAMES = ["redis", "queue-manager", "scheduler", "kv-manager", "rack/node-0", "gateway"]
END_TIMEOUT_S = 10


def kill(pid: int) -> None:
    """End a process as a crash would, and wait until it is gone."""
    ended = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        assert select.select([ended], [], [], END_TIMEOUT_S)[0]
    finally:
        os.close(ended)


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and is_running(psutil.Process(pid))


def test_up_starts_everything_and_down_stops_it(cluster: Cluster) -> None:
    up = cluster.treadle("up")
    assert up.returncode == 0, up.stderr
    assert f"curl -s http://127.0.0.1:{cluster.config['gateway']['port']}/v1/chat/completions" in up.stdout
    assert '"model": "tiny"' in up.stdout
    assert up.stderr.endswith(f"logs: {cluster.data_dir}/logs, or `treadle logs -f`\n")
    pids = cluster.pids()
    assert list(pids) == NAMES
    engine = cluster.status_of("rack/node-0")["engine_pid"]
    assert runs(engine)

    down = cluster.treadle("down")
    assert down.returncode == 0
    assert down.stdout == "stopped: gateway, rack/node-0, kv-manager, scheduler, queue-manager, redis\n"
    assert not any(runs(pid) for pid in [*pids.values(), engine])
    again = cluster.treadle("down")
    assert (again.returncode, again.stdout) == (0, f"nothing runs in {cluster.data_dir}\n")


def test_status_tells_state_memory_and_what_a_node_says(cluster: Cluster) -> None:
    assert cluster.treadle("status").returncode == 1
    assert cluster.treadle("up").returncode == 0
    status = cluster.treadle("status", "--json")
    rows = {row["name"]: row for row in json.loads(status.stdout)["processes"]}
    assert status.returncode == 0
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(NAMES, "ready")
    node = rows["rack/node-0"]
    assert node["pid"] == cluster.pids()["rack/node-0"]
    assert node["rss_bytes"] > 0
    assert (node["device"], node["model"], node["kv_used"]) == ("cpu", "tiny", 0.25)
    assert (node["num_running"], node["num_waiting"]) == (2, 3)
    kill(cluster.pids()["scheduler"])
    table = cluster.treadle("status")
    assert table.returncode == 1
    assert "scheduler      dead" in table.stdout


def test_each_process_gets_its_threads_and_private_files(cluster: Cluster) -> None:
    cluster.write_config(keys=[{"key": "s3cret", "tenant": "t"}])
    up = cluster.treadle("up")
    assert up.returncode == 0, up.stderr
    assert cluster.status_of("rack/node-0")["omp_num_threads"] == 3
    assert cluster.status_of("scheduler")["omp_num_threads"] == 1
    assert "s3cret" not in up.stdout + up.stderr
    copy = cluster.data_dir / "run" / "config.yaml"
    assert "s3cret" in copy.read_text()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert (cluster.data_dir / "logs" / "rack%2Fnode-0.log").exists()


def test_up_again_starts_only_what_is_missing_and_clears_a_killed_node_s_engine(cluster: Cluster) -> None:
    assert cluster.treadle("up").returncode == 0
    before, engine = cluster.pids(), cluster.status_of("rack/node-0")["engine_pid"]
    assert "everything ran already" in cluster.treadle("up").stderr
    assert cluster.pids() == before

    kill(before["rack/node-0"])
    assert runs(engine)
    assert "started: rack/node-0\n" in cluster.treadle("up").stderr
    after = cluster.pids()
    assert {name for name in NAMES if before[name] != after[name]} == {"rack/node-0"}
    assert not runs(engine)


def test_redis_listens_on_the_loopback_address_only_and_keeps_port_and_data(cluster: Cluster) -> None:
    assert cluster.treadle("up").returncode == 0
    port = cluster.state.redis_port
    sockets = psutil.Process(cluster.pids()["redis"]).net_connections("inet")
    listening = {(s.laddr.ip, s.laddr.port) for s in sockets if s.status == psutil.CONN_LISTEN and s.laddr}
    assert listening == {("127.0.0.1", port)}
    with redis.Redis(port=port or 0) as client:
        client.set("promise", "kept")
    assert cluster.treadle("down").returncode == 0
    assert cluster.treadle("up").returncode == 0
    assert cluster.state.redis_port == port
    with redis.Redis(port=port or 0) as client:
        assert client.get("promise") == b"kept"


def test_a_process_that_dies_shows_its_log_and_undoes_the_start(cluster: Cluster) -> None:
    cluster.environment["TREADLE_TEST_FAIL"] = "kv-manager"
    up = cluster.treadle("up")
    assert up.returncode == 1
    assert "kv-manager ended with status 1; last lines of" in up.stderr
    assert "  kv-manager: told to fail\n" in up.stderr
    assert up.stderr.endswith(f"all of the logs: {cluster.data_dir}/logs, or `treadle logs`\n")
    assert "Traceback" not in up.stderr
    assert cluster.pids() == {}


def test_a_node_that_cannot_load_a_model_ends_the_start_in_its_words(cluster: Cluster) -> None:
    cluster.environment["TREADLE_TEST_BROKEN"] = "model 'tiny': its weights find no memory"
    up = cluster.treadle("up")
    log = cluster.data_dir / "logs" / "rack%2Fnode-0.log"
    assert up.returncode == 1
    assert up.stderr.splitlines()[-3:-1] == [
        "Error: rack/node-0 cannot serve: model 'tiny': its weights find no memory",
        f"Its log is {log}; mend that and start again",
    ]
    assert cluster.pids() == {}


def test_a_model_that_cannot_be_served_is_told_before_anything_starts(cluster: Cluster) -> None:
    model = {"name": "tiny", "source": str(cluster.folder / "tiny.gguf"), "max_model_len": 4097}
    cluster.write_config(models=[model, {"name": "none", "source": str(cluster.folder / "none.gguf")}])
    up = cluster.treadle("up")
    assert up.returncode == 2
    assert up.stderr == f"Error: model 'none': {cluster.folder / 'none.gguf'} does not exist\n"
    cluster.write_config(models=[model])
    up = cluster.treadle("up")
    assert up.returncode == 2
    assert up.stderr == (
        "Error: this cluster cannot start: 1 problem\n"
        f"  - models.0: model 'tiny': max_model_len is 4097, but {model['source']} was trained for 4096 tokens; "
        "set at most that, or leave max_model_len out\n"
    )
    assert not (cluster.data_dir / "logs" / "gateway.log").exists()


def test_a_failed_start_leaves_alone_what_ran_before(cluster: Cluster) -> None:
    assert cluster.treadle("up").returncode == 0
    before = cluster.pids()
    kill(before["kv-manager"])
    cluster.environment["TREADLE_TEST_FAIL"] = "kv-manager"
    assert cluster.treadle("up").returncode == 1
    del before["kv-manager"]
    assert cluster.pids() == before
    assert all(runs(pid) for pid in before.values())


def test_a_taken_port_is_named_with_its_holder_before_anything_starts(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", cluster.config["gateway"]["port"])):
        up = cluster.treadle("up")
    holder = f"{psutil.Process().name()} (pid {os.getpid()}) holds it"
    port = cluster.config["gateway"]["port"]
    assert up.returncode == 2
    assert (
        up.stderr == f"Error: port {port} for gateway cannot be used: {holder}; "
        "end that process or set gateway.port to another port\n"
    )
    assert cluster.pids() == {}


def test_another_configuration_is_refused_while_the_cluster_runs(cluster: Cluster) -> None:
    assert cluster.treadle("up").returncode == 0
    before = cluster.pids()
    cluster.write_config(engine={"max_num_seqs": 7})
    up = cluster.treadle("up")
    assert up.returncode == 2
    assert "runs with another configuration" in up.stderr
    assert "`treadle down` first" in up.stderr
    assert cluster.pids() == before


def test_down_does_not_kill_a_process_that_got_a_recorded_pid(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.treadle("up").returncode == 0
    state_file = cluster.data_dir / "run" / "cluster.json"
    gateway = cluster.pids()["gateway"]
    recorded = json.loads(state_file.read_text())
    recorded["processes"]["gateway"]["create_time"] -= 60
    state_file.write_text(json.dumps(recorded))
    down = cluster.treadle("down")
    assert down.stdout == "stopped: rack/node-0, kv-manager, scheduler, queue-manager, redis\n"
    assert runs(gateway)
    os.kill(gateway, signal.SIGKILL)


def test_an_unreachable_redis_is_one_line_without_its_password(cluster: Cluster) -> None:
    cluster.write_config(redis_url="redis://:hunter2@127.0.0.1:1/0")
    up = cluster.treadle("up")
    assert up.returncode == 2
    assert up.stderr.startswith("Error: Redis at redis://127.0.0.1:1/0 does not answer")
    assert "start it, or unset TREADLE_REDIS_URL" in up.stderr
    assert "hunter2" not in up.stderr
    assert len(up.stderr.splitlines()) == 1
