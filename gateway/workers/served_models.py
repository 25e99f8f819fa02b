"""The models that clients can ask for now, by every name that they may say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.models.models import ServedModel


class ServedModels(Mapping[str, ServedModel]):
    """Replaced as a whole: a call that has begun with a model goes on with it, also when it has gone from here."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = models
        self.problem = ""
        """Why these are not those of the configuration's file; ``""``: they are."""
        self.withheld: Mapping[str, str] = {}
        """Names that are known and not served, since nodes may have other weights under them by now; and why."""

    def __getitem__(self, name: str) -> ServedModel:
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def replace(self, models: Mapping[str, ServedModel]) -> bool:
        """Serve these from now on. Whether they are others than before."""
        before, self._models = self._models, models
        return list(map(_identity, before.items())) != list(map(_identity, models.items()))


def _identity(named: tuple[str, ServedModel]) -> tuple[str, str, int]:
    """An adapter is made anew each time, and is its model under another name."""
    name, model = named
    return name, model.name, id(model.base or model)
