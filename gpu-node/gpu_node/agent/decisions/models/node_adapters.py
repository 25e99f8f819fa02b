"""What a node knows of adapters in this epoch: what they are, which are wanted now, and what the engine has of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu_node.engine.process.protocol.protocol import ModelLoaded
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import NO_CHANGES, Changes, KnownModels

FILE_WAIT_S = 90.0
"""For the configuration's file, where requests are for what it does not have here: kubelets take up to a minute."""

RETRY_S = 10.0
"""Until files that could not be used are looked at again, though the configuration has not changed."""


def refusal(model: str, adapter: str) -> str:
    """What a client hears. Why, the node's log and status say: that may name files."""
    return f"{model!r} has no adapter {adapter!r} at this node that can be used"


class NodeAdapters:
    """Of all models. An adapter is known by the names of its model and its own."""

    def __init__(self, known: KnownModels) -> None:
        """``known``: what names stand for as long as the node's process lives."""
        self._known = known
        self._changes: Changes = NO_CHANGES
        self._configured: dict[str, dict[str, AdapterSpec]] = {}
        """By model and name, as the configuration has them now, or had them when it had the model last."""
        self._loaded: dict[str, tuple[str, ...]] = {}
        """Likewise, as the engine had them when the model became the current one last."""
        self._failed: dict[tuple[str, str], str] = {}
        self._missed: set[tuple[str, str]] = set()
        """Waited for in vain: the file does not have them, until it changes."""
        self._failed_since_s: float | None = None
        self.are_fixed = False
        """A model keeps the adapters that it was loaded with."""

    @property
    def broken(self) -> dict[str, dict[str, str]]:
        """By model and name: adapters that serve no request here, and why."""
        here = [(model, name) for model in self._loaded for name in self._configured.get(model, ())]
        found: dict[str, dict[str, str]] = {}
        for model, name in dict.fromkeys([*self._changes.adapters, *self._failed, *here]):
            if problem := self.problem(model, name):
                found.setdefault(model, {})[name] = problem
        return found

    def loaded(self, model: str) -> tuple[str, ...]:
        """Names of those that the engine has, of a model that is loaded."""
        return self._loaded.get(model, ())

    def on_configured(self, specs: Sequence[ModelSpec], changes: Changes) -> None:
        """The configuration has these models now, which differ so from what names stand for.

        Of models that it has no more, nothing changes.
        """
        self._configured |= {spec.name: {one.name: one for one in spec.adapters} for spec in specs}
        self._changes = changes
        self._missed.clear()

    def miss(self, model: str, name: str) -> None:
        """Requests have waited for it as long as a file may take. Others need not: crowd after crowd would keep
        the node from pulling."""
        self._missed.add((model, name))

    def on_loaded(self, event: ModelLoaded) -> None:
        """A model is there, with what could be used of what was asked for."""
        self._loaded[event.model] = event.adapters
        self._failed |= {(event.model, name): problem for name, problem in event.broken_adapters.items()}

    def on_failed(self, model: str, in_use: Iterable[str], error: str) -> None:
        """A model that is there could not have other adapters: those that it lacks stay away."""
        for one in self.wanted(model, in_use):
            if one.name not in self.loaded(model):
                self._failed[model, one.name] = error

    def try_again(self) -> None:
        """What could not be used may be whole by now."""
        self._failed, self._failed_since_s = {}, None

    def due(self, now: float) -> None:
        """Time has passed: what could not be used is tried again when it is asked for next."""
        if self._failed and self._failed_since_s is None:
            self._failed_since_s = now
        elif self._failed_since_s is not None and now - self._failed_since_s >= RETRY_S:
            self.try_again()

    def problem(self, model: str, name: str) -> str:
        """Why a request for an adapter cannot be served, now and for long, or ``""``."""
        if problem := self._changes.adapters.get((model, name)) or self._failed.get((model, name)):
            return problem
        is_lacking = not self._configured or (model, name) in self._missed
        if is_lacking and not self.is_loaded(model, name):
            return refusal(model, name)  # no file is watched that could bring it, or it does not
        if self.are_fixed and not self.is_loaded(model, name) and self.is_known(model, name):
            return f"{model!r} was loaded without adapter {name!r}, and this node's engine adds none: restart the node"
        return ""

    def serves(self, model: str, name: str) -> bool:
        """Whether a request can begin; ``""`` is the model itself."""
        return not name or (self.is_loaded(model, name) and not self.problem(model, name))

    def is_loaded(self, model: str, name: str) -> bool:
        """Whether the engine has the adapter, of a model that is loaded."""
        return name in self.loaded(model)

    def is_known(self, model: str, name: str) -> bool:
        """Whether the configuration has the adapter, or it was loaded once: else its requests wait for that."""
        return self.spec(model, name) is not None

    def spec(self, model: str, name: str) -> AdapterSpec | None:
        """What an adapter's name stands for here; None where it is unknown."""
        return self._known.adapter(model, name) or self._configured.get(model, {}).get(name)

    def lacks(self, model: str) -> bool:
        """Whether a loaded model could have an adapter that it has not."""
        usable = (name for name in self._configured.get(model, ()) if not self.problem(model, name))
        return any(not self.is_loaded(model, name) for name in usable)

    def wanted(self, model: str, in_use: Iterable[str]) -> tuple[AdapterSpec, ...]:
        """What the engine is to load of a model: what is configured and can be used, and what requests here are for.

        A request in flight is answered whole, whatever becomes of its adapter's name.
        """
        usable = [name for name in self._configured.get(model, ()) if (model, name) not in self._changes.adapters]
        names = [name for name in usable if (model, name) not in self._failed]
        specs = [self.spec(model, name) for name in dict.fromkeys([*names, *sorted(set(in_use))])]
        return tuple(spec for spec in specs if spec is not None)
