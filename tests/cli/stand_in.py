"""A process of the cluster for tests of the CLI: answers health questions on its configured port, and nothing else.

`cluster.py` puts it on the path in place of the real modules, so that `treadle up` starts real processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import yaml

SERVICES = ["queue-manager", "scheduler", "kv-manager", "gateway"]
"""In the order of their admin ports; all others are nodes."""
STATUS: dict[str, object] = {
    "device": "cpu",
    "model": "tiny",
    "num_running": 2,
    "num_waiting": 3,
    "num_blocks": 8,
    "num_free_blocks": 6,
}


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(STATUS).encode() if self.path == "/status" else b"ok"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server has
        """Nothing in the log."""


def serve(name: str) -> None:
    """Be process ``name`` until SIGTERM; if TREADLE_TEST_FAIL names it, die with a message instead."""
    if os.environ.get("TREADLE_TEST_FAIL") == name:
        sys.exit(f"{name}: told to fail")
    if name not in SERVICES:
        # like an agent with its engine; ended by a signal, it leaves this child behind
        engine = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        STATUS["engine_pid"] = engine.pid
        if broken := os.environ.get("TREADLE_TEST_BROKEN"):
            STATUS["broken_models"] = {"tiny": broken}
    STATUS["omp_num_threads"] = int(os.environ["OMP_NUM_THREADS"])
    HTTPServer(_address(name), Health).serve_forever()


def _address(name: str) -> tuple[str, int]:
    """Where it answers. A node asks the configuration itself; to import that is most of the start of such a process."""
    if name not in SERVICES:
        from shared.config.config import load_config

        checked = load_config()
        return checked.admin_host, checked.admin_port_of(name)
    written: dict[str, Any] = yaml.load(Path(os.environ["TREADLE_CONFIG"]).read_text(), yaml.CSafeLoader)
    return written["admin_host"], written["admin_port"] + SERVICES.index(name)


def install(folder: Path) -> None:
    """Write modules of the real names into ``folder``, to be first on PYTHONPATH."""
    for module, name in (
        ("services/queue_manager/__main__", "'queue-manager'"),
        ("services/scheduler/__main__", "'scheduler'"),
        ("services/kv_manager/__main__", "'kv-manager'"),
        ("gateway/__main__", "'gateway'"),
        ("gpu_node/agent", "sys.argv[sys.argv.index('--node') + 1]"),
    ):
        path = folder / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in (path.parent, folder / module.split("/")[0]):
            # beside the real package: what the command itself imports is there as well
            (package / "__init__.py").write_text("__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n")
        path.write_text(f"import sys\n\nfrom tests.cli.stand_in import serve\n\nserve({name})\n")
