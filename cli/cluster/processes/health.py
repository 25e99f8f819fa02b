"""Ask a process how it is, over its health endpoints."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from cli.cluster.processes.process_plan import ProcessSpec

PROBE_TIMEOUT_S = 1.0
_BODY_BYTES = 1 << 20


@dataclass(frozen=True)
class Readiness:
    """Whether a process serves, and if not, what it waits for."""

    ready: bool
    waits_for: str = ""


def readiness(spec: ProcessSpec) -> Readiness:
    """Ask ``/readyz``. A process that does not answer is still starting."""
    answer = _get(spec, "/readyz")
    if answer is None:
        return Readiness(ready=False, waits_for="starting")
    status, body = answer
    if status == http.HTTPStatus.OK:
        return Readiness(ready=True)
    return Readiness(ready=False, waits_for=" ".join(body.decode(errors="replace").split()) or f"HTTP {status}")


def known_state(spec: ProcessSpec) -> dict[str, Any]:
    """What ``/status`` tells; empty when it does not answer with a JSON object."""
    answer = _get(spec, "/status")
    if answer is None or answer[0] != http.HTTPStatus.OK:
        return {}
    try:
        state = json.loads(answer[1])
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


@dataclass(frozen=True, slots=True)
class LoadFailures:
    """Why a node cannot load models, in its own words."""

    broken_models: dict[str, str]
    """By model, those that it will not try again."""
    engine: str
    """How its engine ended while it loaded one, and is started again; empty where it has not."""


def load_failures(spec: ProcessSpec) -> LoadFailures:
    """What has failed at a node; nothing where it does not answer."""
    state = known_state(spec)
    broken, failed = state.get("broken_models"), state.get("failed")
    texts = {model: str(text) for model, text in broken.items()} if isinstance(broken, dict) else {}
    return LoadFailures(texts, failed if isinstance(failed, str) else "")


def _get(spec: ProcessSpec, path: str) -> tuple[int, bytes] | None:
    connection = http.client.HTTPConnection(spec.probe_host, spec.port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(_BODY_BYTES)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
