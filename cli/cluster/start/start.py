"""Bring a cluster up: start what is missing, wait until all of it serves, undo the start if it fails."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cli.cluster.processes.health import load_failures, readiness
from cli.cluster.processes.ports import taken_ports
from cli.cluster.processes.process_plan import NODE_STAGE, REDIS, ProcessSpec, process_environment, process_plan
from cli.cluster.processes.redis_server import check_configured, own_url, start_own
from cli.cluster.run_dir import RunDir, write_atomically
from cli.cluster.start.broken_models import BrokenModels
from cli.cluster.start.start_display import READY, StartDisplay
from cli.cluster.state import ClusterState
from cli.config.yaml import process_yaml
from cli.errors import CliError, ClusterError
from shared.config.config import REDIS_ENV, ClusterConfig
from shared.processes.node_processes import find_nodes
from shared.processes.processes import exit_status, launch, stop
from shared.telemetry.log_files import rotate, tail

_POLL_S, _MOST_POLL_S = 0.1, 0.5
_POLL_SHARE = 0.05
"""Of the time so far, which passes between two looks: each asks all that are not ready yet, on the cores on which they
start, and whoever waits a minute may hear of its end half a second later."""


class ClusterStart:
    """One start. What was running before it is never touched, what it started is stopped again if it fails."""

    def __init__(self, config: ClusterConfig, run_dir: RunDir, display: StartDisplay) -> None:
        self._config = config
        self._run_dir = run_dir
        self._display = display
        self._plan = process_plan(config)
        self._state = ClusterState.load(run_dir.state_file)
        self._before = set(self._state.running())
        self._log_starts: dict[str, int] = {}
        nodes = {spec.name: config.node(spec.name) for spec in self._plan if spec.stage == NODE_STAGE}
        self._broken = BrokenModels({name: (node.kind, node.device) for name, node in nodes.items()})

    def run(self, wait_s: float) -> list[str]:
        """Names of the processes that were started; `ClusterError` when the cluster does not get ready."""
        missing = [spec for spec in self._plan if spec.name not in self._before]
        self._write_config()
        self._clear_remains()
        if problems := taken_ports(missing):
            raise CliError("\n".join(problems))
        try:
            redis_url = self._redis()
            for spec in missing:
                self._launch(spec, redis_url)
            self._wait(wait_s)
        except BaseException:  # Ctrl-C as well: nothing stays half-started
            self._undo()
            raise
        return self._started()

    def _started(self) -> list[str]:
        return [name for name in self._state.processes if name not in self._before]

    def _undo(self) -> None:
        pool_nodes = [] if self._before else find_nodes(str(self._run_dir.config_file)).values()
        stop([*(self._state.processes[name] for name in self._started()), *pool_nodes])
        self._forget(self._started())

    def _forget(self, names: list[str]) -> None:
        for name in names:
            del self._state.processes[name]
        self._state.save(self._run_dir.state_file)

    def _write_config(self) -> None:
        """Leave a copy for the processes: a restart of one must not depend on later edits of the file."""
        text = process_yaml(self._config)
        path = self._run_dir.config_file
        if self._before and path.exists() and path.read_text() != text:
            raise CliError(
                f"the cluster in {self._run_dir.root} runs with another configuration "
                f"({', '.join(sorted(self._before))}); `treadle apply` takes over models and keys, for the rest run "
                "`treadle down` first"
            )
        write_atomically(path, text)

    def _clear_remains(self) -> None:
        """A process that was killed may have left its children: an engine must not run twice on one device."""
        dead = self._started()  # nothing of this start is there yet
        stop([self._state.processes[name] for name in dead])
        self._forget(dead)

    def _redis(self) -> str:
        if self._config.redis_url is not None:
            url = self._config.redis_url.get_secret_value()
            check_configured(url)
        else:
            self._display.show(REDIS, "starting")
            url = own_url(self._state) or start_own(self._run_dir, self._state)
            self._display.show(REDIS, READY)
        self._check_same_redis(url)
        return url

    def _check_same_redis(self, url: str) -> None:
        """What runs already must use the same Redis, or the cluster would fall in two."""
        for name in self._before - {REDIS}:
            leader = self._state.processes[name].leader()
            if leader is not None and leader.environ().get(REDIS_ENV) != url:
                raise CliError(f"{name} runs on another Redis than the one in use now; run `treadle down` first")

    def _launch(self, spec: ProcessSpec, redis_url: str) -> None:
        log = self._run_dir.log_file(spec.name)
        self._log_starts[spec.name] = rotate(log)
        environment = process_environment(str(self._run_dir.config_file), redis_url, spec.num_threads)
        self._state.processes[spec.name] = launch(spec.argv, environment, log, spec.stage)
        self._state.save(self._run_dir.state_file)  # after each: a start that is killed leaves no stranger

    def _wait(self, wait_s: float) -> None:
        began_s = time.monotonic()
        waiting = list(self._plan)
        while waiting:
            self._check_alive(waiting)
            waiting = [spec for spec in waiting if not self._is_ready(spec)]
            waited_s = time.monotonic() - began_s
            if waiting and waited_s > wait_s:
                raise ClusterError(self._overdue(waiting, wait_s))
            if waiting:
                time.sleep(min(max(_POLL_S, _POLL_SHARE * waited_s), _MOST_POLL_S))

    def _is_ready(self, spec: ProcessSpec) -> bool:
        found = readiness(spec)
        self._display.show(spec.name, READY if found.ready else found.waits_for)
        is_new = spec.name not in self._before or not found.ready
        if spec.stage == NODE_STAGE and is_new:
            self._check_loads(spec)
        return found.ready

    def _check_loads(self, spec: ProcessSpec) -> None:
        failures = load_failures(spec)
        self._broken.note(spec.name, failures.broken_models)
        failed = {spec.name: failures.engine} if failures.engine else self._broken.hopeless()
        for node, failure in failed.items():
            log = self._run_dir.log_file(node)
            raise ClusterError(f"{node} cannot serve: {failure}\nIts log is {log}; mend that and start again")

    def _check_alive(self, specs: Sequence[ProcessSpec]) -> None:
        for spec in specs:
            record = self._state.processes[spec.name]
            if record.leader() is None:
                status = exit_status(record)
                how = "died" if status is None else f"ended with status {status}"
                log = self._run_dir.log_file(spec.name)
                lines = tail(log, self._log_starts.get(spec.name, 0))
                raise ClusterError(f"{spec.name} {how}; last lines of {log}:\n{lines}")

    def _overdue(self, waiting: Sequence[ProcessSpec], wait_s: float) -> str:
        lines = []
        for spec in waiting:
            log = self._run_dir.log_file(spec.name)
            start = self._log_starts.get(spec.name, 0)
            lines.append(f"{spec.name}: {readiness(spec).waits_for}; last lines of {log}:")
            lines.append(tail(log, start))
        return f"not ready after {wait_s:g} s:\n" + "\n".join(lines)
