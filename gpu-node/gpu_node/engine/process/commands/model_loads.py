"""Models as the agent asks for them: loaded at once or, where requests of theirs go on, prepared in a thread first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Thread

import structlog

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.engine import Engine
from gpu_node.engine.process.commands.commands import Commands
from gpu_node.engine.process.protocol.protocol import ModelFailed
from gpu_node.engine.residents import EngineBusyError
from shared.config.engines.engine import ModelSpec
from shared.config.model_specs import ModelSpecs
from shared.files.model_file import AdapterFilesError, ModelFileError
from shared.processes import garbage

log = structlog.get_logger()

LOOK_S = 0.005
"""Between two looks at a thread that prepares, while there is nothing else to do."""

END_TIMEOUT_S = 2.0
"""For a thread that prepares when the process ends; it is left alone then."""


@dataclass(slots=True)
class _Load:
    """That has been asked for and is not answered yet."""

    spec: ModelSpec
    started_s: float
    source: str
    broken: dict[str, str] = field(default_factory=dict)
    """Adapters that cannot be used, and why."""
    thread: Thread | None = None
    error: Exception | None = None
    """Of the thread."""

    @property
    def usable(self) -> ModelSpec:
        """The model with all others."""
        return replace(self.spec, adapters=tuple(one for one in self.spec.adapters if one.name not in self.broken))


class ModelLoads:
    """One load at a time; each is answered by `ModelLoaded` or `ModelFailed`."""

    def __init__(
        self,
        engine: Engine,
        specs: ModelSpecs,
        commands: Commands,
        send: Callable[[ModelFailed], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._specs = specs
        self._commands = commands
        self._send = send
        self._clock = clock
        self._load: _Load | None = None
        self._unpiped: set[str] = set()  # models of which it has been said that no pipeline is known

    @property
    def is_under_way(self) -> bool:
        """A model is being prepared."""
        return self._load is not None

    def begin(self, name: str, told: ModelSpec | None) -> None:
        """Load a model, as it is told; one that is prepared first is there after a `look`."""
        while self._load is not None:
            self._wait(self._load)
        source = self._engine.tiers.get(name, "disk")
        try:
            spec = self._specs.told(name, told)
        except KeyError:
            self._fail(name, f"model {name!r} is not in the configuration", is_unknown=True)
        else:
            self._load = _Load(spec, self._clock(), source)
            self._go_on(self._load)

    def look(self) -> bool:
        """Load what is prepared by now; whether there is an answer."""
        load = self._load
        if load is not None and load.thread is not None and not load.thread.is_alive():
            self._wait(load)
        return load is not None and self._load is None

    def close(self) -> None:
        """Nothing of a load that is under way is wanted any more."""
        if self._load is not None and self._load.thread is not None:
            self._load.thread.join(END_TIMEOUT_S)

    def _wait(self, load: _Load) -> None:
        assert load.thread is not None, "all else is answered at once"
        load.thread.join()
        load.thread = None
        if load.error is None:
            self._finish(load)
        else:
            self._take(load, load.error)

    def _go_on(self, load: _Load) -> None:
        """With all that is not known to be broken."""
        if self._engine.prepares_beside(load.usable):
            load.error = None
            load.thread = Thread(target=_prepare, args=(self._engine, load), name="prepares a model", daemon=True)
            load.thread.start()
        else:
            self._finish(load)

    def _finish(self, load: _Load) -> None:
        try:
            model = self._engine.load_model(load.usable)
        except (ModelFileError, ModelTooLargeError, EngineBusyError) as error:
            self._take(load, error)
            return
        self._load = None
        name, took_s = model.name, self._clock() - load.started_s
        values = {"num_blocks": model.num_blocks, "source": load.source, "adapters": list(model.adapters)}
        log.info("model loaded", model=name, load_s=round(took_s, 3), **values)
        self._commands.loaded(model, 0.0 if load.source == "device" else took_s, load.source, load.broken)
        if load.source == "disk":
            garbage.settle()  # beside what loading took, its time is little
        if model.lacks_pipeline and name not in self._unpiped:
            self._unpiped.add(name)
            log.warning("no pipeline known: steps run plainly", model=name)

    def _take(self, load: _Load, error: Exception) -> None:
        if isinstance(error, AdapterFilesError):
            log.error("adapters not loaded", model=load.spec.name, error=str(error))
            load.broken |= error.problems
            self._go_on(load)
        elif isinstance(error, ModelFileError | ModelTooLargeError | EngineBusyError):
            self._load = None
            self._fail(load.spec.name, str(error))
        else:
            raise error

    def _fail(self, name: str, error: str, *, is_unknown: bool = False) -> None:
        log.error("model not loaded", model=name, error=error)
        self._send(ModelFailed(name, error, is_unknown))


def _prepare(engine: Engine, load: _Load) -> None:
    try:
        engine.prepare(load.usable)
    except Exception as error:  # raised again by the thread that waits
        load.error = error
