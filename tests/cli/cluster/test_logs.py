"""`treadle logs` on files, and the files kept below their limit by the processes that write them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.cluster.logs.log_tail import LogTail
from cli.main import main
from shared.processes.processes import launch
from shared.telemetry.log_files import LOG_MAX_BYTES, log_file, old_log, rotate, tail

SAYS = """
import os, structlog, subprocess, sys
from shared.telemetry.telemetry import configure_logging
configure_logging("node", "node-0")
log = structlog.get_logger()
"""
CHILD = f"""{SAYS}
print("ready", flush=True)
sys.stdin.read()
log.info("the last of the child in the old")
os.write(2, b"a crash of the child")
"""
PARENT = f"""{SAYS}
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], text=True, **pipes)
assert child.stdout.readline() == "ready\\n"
log.info("the last of the old")
os.write(2, b"a crash\\n")
print("from Python", flush=True)
child.communicate()
log.info("the end")
"""
END_TIMEOUT_S = 30


def say(second: int, text: str) -> str:
    return f'{{"event":"{text}","level":"info","timestamp":"2026-11-23T09:00:{second:02}Z"}}\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "logs"
    folder.mkdir(parents=True)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"data_dir": str(tmp_path / "data")}))
    return folder


def treadle_logs(logs: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["logs", "--file", str(logs.parents[1] / "cluster.yaml"), *arguments])


def events(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()[1:]) for line in result.stdout.splitlines()]


def texts(log: LogTail) -> list[str]:
    return [f"{line.text}\n" for line in log.more()]


def test_all_logs_are_one_and_the_last_lines_of_it_are_shown(logs: Path) -> None:
    (logs / "gateway.log").write_text(say(1, "a") + say(4, "d"))
    (logs / "rack%2Fnode-0.log").write_text(say(2, "b") + say(3, "c"))
    assert events(treadle_logs(logs)) == [
        "gateway info a",
        "rack/node-0 info b",
        "rack/node-0 info c",
        "gateway info d",
    ]
    assert events(treadle_logs(logs, "-n", "2")) == ["rack/node-0 info c", "gateway info d"]
    assert events(treadle_logs(logs, "rack/node-0", "-n", "1")) == ["rack/node-0 info c"]
    assert events(treadle_logs(logs, "-n", "0")) == []


def test_a_log_that_was_set_aside_is_read_where_lines_are_missing(logs: Path) -> None:
    (logs / "gateway.log.1").write_text(say(1, "a") + say(2, "b"))
    (logs / "gateway.log").write_text(say(3, "c"))
    assert events(treadle_logs(logs, "-n", "2")) == ["gateway info b", "gateway info c"]


def test_the_end_of_a_long_log_is_read_alone(logs: Path) -> None:
    (logs / "gateway.log").write_text("".join(say(number % 60, f"n{number}") for number in range(5_000)))
    log = LogTail(logs / "gateway.log")
    assert [line.text + "\n" for line in log.last(2_000)] == [
        say(number % 60, f"n{number}") for number in range(3_000, 5_000)
    ]
    log.close()


def test_what_is_not_there_is_said_with_what_is(logs: Path) -> None:
    nothing = treadle_logs(logs)
    assert nothing.exit_code == 2
    assert f"there are no logs in {logs}; `treadle up` starts" in nothing.output
    (logs / "gateway.log").touch()
    (logs / "redis.log").touch()
    unknown = treadle_logs(logs, "gatway")
    assert unknown.exit_code == 2
    assert f"no log of gatway in {logs}; there are: gateway, redis" in unknown.output


def test_a_followed_log_goes_on_over_its_rotation(logs: Path) -> None:
    path = logs / "gateway.log"
    path.write_text(say(1, "a"))
    log = LogTail(path)
    assert [line.text for line in log.last(9)] == [say(1, "a").strip()]
    assert texts(log) == []
    with path.open("a") as file:
        file.write(say(2, "b") + '{"event":"half')
    assert texts(log) == [say(2, "b")]
    with path.open("a") as file:
        file.write('"}\n' + say(3, "c"))
    path.rename(old_log(path))
    assert texts(log) == ['{"event":"half"}\n', say(3, "c")], "the next one is not begun yet"
    path.write_text(say(4, "d"))
    assert texts(log) == [say(4, "d")]
    log.close()


def test_a_process_sets_its_log_aside_and_goes_on_in_a_new_one_with_its_children(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = log_file(tmp_path, "node-0")
    log.touch()
    os.truncate(log, LOG_MAX_BYTES + 1)
    record = launch([sys.executable, "-c", PARENT], {**os.environ, "TREADLE_CONFIG": "x"}, log, stage=1)
    assert os.waitpid(record.pid, 0)[1] == 0, tail(log)
    old, new = old_log(log).read_bytes().strip(b"\0").decode(), log.read_text()
    assert '"event":"the last of the old"' in old
    assert new.startswith("a crash\nfrom Python\n"), "raw output follows"
    assert '"event":"the last of the child in the old"' in old, "at its first line it sees that it must follow"
    assert "a crash of the child" in new
    assert '"event":"the end"' in new
    assert log.stat().st_mode & 0o777 == 0o600


def test_whose_output_is_no_log_file_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "other.log"
    log.touch()
    environment = {**os.environ, "TREADLE_LOG_FILE": str(log)}
    command = [sys.executable, "-c", f"{SAYS}log.info('here')"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=END_TIMEOUT_S)
    assert "here" in said.stderr
    assert log.read_text() == ""


def test_the_last_lines_of_a_start_are_found_though_its_log_was_set_aside_since(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("before\n" * 1000)
    start = rotate(log)
    log.write_text("why it died\n")
    assert tail(log, start) == "  why it died"
