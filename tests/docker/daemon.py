"""What the tests need of Docker: a daemon, a Compose, images to build on; or the reason why there is none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PULL_TIMEOUT_S = 600
MAKE_TIMEOUT_S = 600
COMMAND_TIMEOUT_S = 60

WANTED = {"BASE_IMAGE": "python:3.11-slim", "BUILD_IMAGE": "python:3.11", "REDIS_IMAGE": "redis:7"}
STAND_INS = {  # what base_images.sh makes
    "BASE_IMAGE": "treadle-base/python:3.11-slim",
    "BUILD_IMAGE": "treadle-base/build:3.11",
    "REDIS_IMAGE": "treadle-base/redis:7",
}


class NoDockerError(Exception):
    """Nothing can be built or run here; the text says what is missing."""


def run(*command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a command; it may fail."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)


def find_compose() -> list[str]:
    """Compose v2, else docker-compose 1.29; `NoDockerError` without either or without a daemon."""
    if shutil.which("docker") is None:
        raise NoDockerError("there is no docker command; install Docker")
    if (answer := run("docker", "info", "--format", "{{.ServerVersion}}")).returncode != 0:
        raise NoDockerError(f"no Docker daemon answers; start one ({answer.stderr.strip()})")
    if run("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        raise NoDockerError("there is neither Compose v2 (`docker compose`) nor docker-compose")
    return ["docker-compose"]


def base_images() -> dict[str, str]:
    """The images named by the environment, else the usual ones, else stand-ins made of Debian packages."""
    named = {variable: os.environ[variable] for variable in WANTED if os.environ.get(variable)}
    if len(named) == len(WANTED):
        return named
    for images in (WANTED, STAND_INS):
        if _are_here(images):
            return images | named
    if all(_pull(image) for image in WANTED.values()):
        return WANTED | named
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise NoDockerError("no image registry can be reached; tests/docker/base_images.sh needs root and debootstrap")
    made = run(str(ROOT / "tests/docker/base_images.sh"), timeout_s=MAKE_TIMEOUT_S)
    if made.returncode != 0:
        raise NoDockerError(f"base_images.sh made no images to build on: {made.stderr.strip()}")
    return STAND_INS | named


def _pull(image: str) -> bool:
    return run("docker", "pull", "--quiet", image, timeout_s=PULL_TIMEOUT_S).returncode == 0


def _are_here(images: dict[str, str]) -> bool:
    return run("docker", "image", "inspect", *images.values()).returncode == 0
