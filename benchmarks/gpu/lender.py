"""An engine in a process of its own that lends pages, and does what it is told by lines of JSON: see `woven`.

Without anything to do it looks for what it is asked for, as an engine's process does (`gpu_node.engine.process`).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any

import torch
from decodes import DecodeLoad
from woven_engine import LINK, EngineOf

from gpu_node.engine.engine import Engine
from shared.messages.memory.link_sizes import LinkSizes


class Lender:
    """The other end of the process's pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._said: IO[str] = process.stdout
        self._heard: IO[str] = process.stdin

    def ask(self, do: str, **what: object) -> Any:
        """Its answer. `RuntimeError` if the process ends."""
        self._heard.write(json.dumps({"do": do, **what}) + "\n")
        self._heard.flush()
        return self.hear()

    def hear(self) -> Any:
        """The next line that it says."""
        line = self._said.readline()
        if not line:
            raise RuntimeError(f"the lending engine ended with {self.process.wait()}")
        return json.loads(line)

    def receive(self, sizes: LinkSizes) -> None:
        """Have it serve a link from now on."""
        self.ask("receive", sizes=asdict(sizes))


@contextmanager
def lender(engine: EngineOf, environment: Mapping[str, str]) -> Iterator[Lender]:
    """With the model loaded; it is killed behind this. ``environment``: beside what this process has."""
    command = [sys.executable, __file__, json.dumps(engine.row())]
    paths, pipe = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, subprocess.PIPE
    environment = {**os.environ, **paths, **environment}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        try:
            found = Lender(process)
            found.hear()
            yield found
        finally:
            process.kill()


class _Lending:
    """What an engine is told."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._model = model
        self._own: DecodeLoad | None = None

    def do(self, asked: Mapping[str, Any]) -> dict[str, object]:
        """The answer."""
        offload = self._engine.offload
        match asked:
            case {"do": "receive", "sizes": sizes}:
                offload.receive(LINK, LinkSizes(**sizes))
            case {"do": "lend", "num_pages": num_pages}:
                return {"pages": offload.lend(LINK, num_pages), "page_bytes": offload.page_bytes}
            case {"do": "served"}:
                return {"num_served": self._num_served()}
            case {"do": "decode", "num": num, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens}:
                self._own = DecodeLoad(self._engine, self._model, num, prompt_tokens, output_tokens)
                self._own.fill()
            case {"do": "step_s"} if self._own is not None:
                return {"step_s": self._own.step_s()}
            case _:
                raise ValueError(f"{asked} is nothing that it can do")
        return {}

    def _num_served(self) -> int:
        """Up to now: what a look says is of late, and asks for the next copy."""
        offload = self._engine.offload
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        offload.num_served  # noqa: B018
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return offload.num_served

    def go_on(self) -> None:
        """With requests of its own, or with looking for what others ask."""
        if self._own is not None:
            self._own.step()
        else:
            self._engine.offload.serve()


def _lend(engine: EngineOf) -> None:
    """Until the input ends."""
    lending = _Lending(engine.make(), engine.spec.name)
    _say({})
    while True:
        if select.select([sys.stdin], [], [], 0.0)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            _say(lending.do(json.loads(line)))
        lending.go_on()


def _say(answer: Mapping[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _lend(EngineOf.of(json.loads(sys.argv[1])))
