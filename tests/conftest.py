"""What all suites share: a real Redis (or Valkey) of the session's own, the real model, and how tests are told apart.

What a test needs is seen by its fixtures: `redis_program` makes it a test of a real Redis, `model_file` one of the real
model. `make test-fast` leaves both out, and those marked ``slow``; `processor_time` names those that should be.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from xdist.remote import Producer

from cli.cluster.processes.ports import free_port
from cli.cluster.processes.redis_server import find_server
from shared.bus.bus import connect
from shared.config.config import ClusterConfig
from shared.files.model_file import model_path
from tests.processor_time import pytest_runtest_makereport, pytest_runtest_setup, pytest_terminal_summary
from tests.sharing import FilesAndGroups, name_groups

__all__ = ["pytest_runtest_makereport", "pytest_runtest_setup", "pytest_terminal_summary"]  # hooks of this folder

NUM_CORES = len(os.sched_getaffinity(0))
START_TRIES = 200
REQUIRE_MODEL_ENV = "TREADLE_REQUIRE_MODEL"
NO_TENSORS_ENV = "TREADLE_NO_TENSORS"
LEFT_OUT = frozenset(Path(__file__).parents[1] / name for name in os.environ.get(NO_TENSORS_ENV, "").split())
"""By `make test-fast` alone. Pytest's `--ignore` goes through all of its list for each path: a tenth of collecting."""
SO_LONG = "which takes seconds of each process: see TENSORS in the Makefile"
MARKED_BY_FIXTURE = {
    "redis_program": pytest.mark.redis,
    "model_file": pytest.mark.model,
    "chart": pytest.mark.slow,  # rendered by helm, many times
}

# how long an example takes says how busy the machine is
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

if shutil.which("nvidia-smi") is None:
    # kernels of the CUDA device run on the CPU; Triton reads this when it is imported, which others may do first
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """With `-n auto`, half as many again as there are cores: a third of the time of all tests is waiting."""
    return NUM_CORES * 3 // 2 if config.getoption("numprocesses") == "auto" else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesAndGroups:
    return FilesAndGroups(config, log)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path in LEFT_OUT else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Tests have their marks before pytest chooses among them (`-m`), and groups behind hooks of folders.

    Properties are slow, for their many examples.
    """
    if LEFT_OUT and "torch" in sys.modules:
        raise pytest.UsageError(f"a test module imports torch, {SO_LONG}")
    for item in items:
        for fixture, mark in MARKED_BY_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.slow)
    yield
    items.sort(key=_place)
    if hasattr(config, "workerinput"):  # one of several processes that share them
        name_groups(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: to look through it again and again for cycles took a tenth of the time.

    Also what of it is garbage: it is looked for at the end (`_all_garbage`), and once is enough.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _no_tensors() -> Iterator[None]:
    yield
    assert not (LEFT_OUT and "torch" in sys.modules), f"a test or a fixture has imported torch, {SO_LONG}"


@pytest.fixture(autouse=True, scope="session")
def _all_garbage() -> Iterator[None]:
    """What outlived its file (`_garbage`) is looked through once, at the end.

    Nothing of a test is made after that; to go through all of it again, in pytest's end and in Python's, takes seconds.
    """
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _garbage() -> Iterator[None]:
    """What a file leaves behind unclosed fails its last test, and not some test of another file that collects it.

    What was there before the file is not looked through again: with all that a process keeps of hundreds of files, each
    collection would take a second.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.collect()


def _place(item: pytest.Item) -> tuple[bool, bool]:
    """The longest first, so that no process is left with one of them at the end; else as they were collected."""
    return (item.get_closest_marker("e2e") is None, item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def redis_program() -> Path:
    """The server's program."""
    return find_server()


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The first default model, as `treadle models pull` leaves it; with TREADLE_REQUIRE_MODEL set it must be there."""
    path = model_path(ClusterConfig().models[0])
    if not path.is_file():
        missing = f"no model at {path}: run `treadle models pull`"
        if os.environ.get(REQUIRE_MODEL_ENV):
            pytest.fail(missing)
        pytest.skip(f"{missing}, or set {REQUIRE_MODEL_ENV}=1 to fail instead")
    return path


@pytest.fixture(scope="session")
def redis_url(redis_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server started for this session, empty, gone afterwards."""
    if url := os.environ.get("TREADLE_TEST_REDIS_URL"):
        yield url
        return
    port = free_port("127.0.0.1")
    data: Path = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(data)]
    with (data / "log").open("wb") as log, subprocess.Popen([str(redis_program), *options], stdout=log) as server:
        try:
            url = f"redis://127.0.0.1:{port}/0"
            _wait_until_up(url)
            yield url
        finally:
            server.terminate()


def _wait_until_up(url: str) -> None:
    with SyncRedis.from_url(url) as client:
        for _ in range(START_TRIES):
            try:
                client.ping()
            except RedisConnectionError:
                os.sched_yield()
                subprocess.run(["sleep", "0.05"], check=True)
            else:
                return
    raise TimeoutError("the Redis of the tests did not start")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of an empty database."""
    client = connect(redis_url)
    await client.flushdb()
    yield client
    await client.aclose()
