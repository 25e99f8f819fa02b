"""Files of a model's adapters, read in a thread while the model serves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from gpu_node.vllm.words.adapters import ReadAdapters
from shared.config.engines.engine import ModelSpec


@dataclass(frozen=True, slots=True)
class AdaptersRead:
    """What the line hears when it is done."""


class AdapterReading:
    """That has begun, and is to be answered once its model has all that was found."""

    def __init__(self, spec: ModelSpec, read: Callable[[], ReadAdapters], tell: Callable[[AdaptersRead], None]) -> None:
        """``tell`` is called in another thread."""
        self.spec = spec
        self._found: Future[ReadAdapters] = Future()
        self._rest: ReadAdapters | None = None

        def work() -> None:
            try:
                self._found.set_result(read())
            except Exception as error:  # raised again where the result is taken
                self._found.set_exception(error)
            tell(AdaptersRead())

        threading.Thread(target=work, name="reads adapters", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """All is read."""
        return self._found.done()

    @property
    def is_begun(self) -> bool:
        """Its model has some of it."""
        return self._rest is not None

    def leave(self, rest: ReadAdapters) -> None:
        """So much is left to be taken."""
        self._rest = rest

    def left(self) -> ReadAdapters:
        """All at first; waits for it."""
        return self._found.result() if self._rest is None else self._rest
