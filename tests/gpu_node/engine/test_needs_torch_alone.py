"""What computes needs torch and Triton, and no other package: a machine with a GPU may have nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

FORBIDDEN = ("msgspec", "pydantic", "numpy", "structlog", "safetensors", "gguf", "yaml", "redis")
IMPORTS = f"""
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN}:
            raise ModuleNotFoundError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Blocked())
for module in sys.argv[1:]:
    importlib.import_module(module)
print("imported")
"""


def imports(*modules: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", IMPORTS, *modules]
    compiled = {**os.environ, "TRITON_INTERPRET": ""}  # Triton's interpreter has needs of its own: numpy
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=compiled)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_an_engine_with_its_executors_needs_no_package_but_torch_and_triton() -> None:
    modules = ["engine.engine", "executors.reference", "executors.cuda.executor", "models.checkpoint", "models.weights"]
    assert imports(*(f"gpu_node.{module}" for module in modules)) == "imported"


def test_what_is_blocked_here_would_be_noticed() -> None:
    assert imports("shared.messages.codec") == "ModuleNotFoundError: msgspec is not installed here"
