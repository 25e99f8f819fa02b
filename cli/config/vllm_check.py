"""Whether the environments that nodes with vLLM name are there, and hold the vLLM that is spoken to."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool, NodeSpec
from shared.config.nodes.vllm import PACKAGES, VLLM_VERSION

ASK_TIMEOUT_S = 30.0
_ASK = f"""
from importlib.metadata import PackageNotFoundError, version
for name in {PACKAGES!r}:
    try:
        print(version(name).split("+")[0])
        break
    except PackageNotFoundError:
        pass
"""
"""Of the package's own record: to import vLLM takes seconds."""


def vllm_problems(config: ClusterConfig) -> list[str]:
    """Each environment is asked once, however many nodes use it."""
    places: list[tuple[str, list[NodeSpec] | list[NodePool]]] = [("nodes", config.nodes), ("pools", config.pools)]
    problems = []
    asked: dict[Path, str] = {}
    for section, nodes in places:
        for number, node in enumerate(nodes):
            if node.engine != "vllm":
                continue
            python = node.vllm_options.python.expanduser()
            if python not in asked:
                asked[python] = environment_problem(python)
            if asked[python]:
                problems.append(f"{section}.{number}.vllm.python: {asked[python]}")
    return problems


def environment_problem(python: Path) -> str:
    """Why no vLLM can be started by this interpreter; ``""`` where one can."""
    remedy = "`make vllm-env` makes an environment"
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own interpreter
            [str(python), "-I", "-c", _ASK], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
    except OSError as error:
        return f"{python} cannot be started ({error.strerror}); {remedy}"
    except subprocess.TimeoutExpired:
        return f"{python} does not answer within {ASK_TIMEOUT_S:.0f} s; {remedy}"
    found = done.stdout.strip()
    if done.returncode or not found:
        return f"{python} has no vLLM; {remedy}"
    return "" if found == VLLM_VERSION else f"{python} has vLLM {found}; Treadle speaks to {VLLM_VERSION}; {remedy}"
