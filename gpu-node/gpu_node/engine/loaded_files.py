"""What the files of a loaded model were when they were read, and those of all adapters that it has had since.

A model that is loaded again with other adapters goes on with the KV that is there, of requests and of cached prefixes,
which are known by its adapters' names. So each file has to be what it was, as long as the model is loaded: else tokens
would be drawn by some weights from keys and values that others have made.
"""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.fingerprint import fingerprint
from shared.files.model_file import AdapterFilesError, ModelFileError

_REMEDY = "restart the node, or serve them under another name"


class LoadedFiles:
    """Of one model; of one whose blocks have no content, nothing is known."""

    def __init__(self, model: LoadedModel) -> None:
        self._model_layout = model.kv_layout
        self._adapter_layouts: dict[str, str] = {}
        self.learn(model)

    def learn(self, model: LoadedModel) -> None:
        """It is loaded, with these adapters."""
        for name, layout in zip(model.adapters, model.adapter_layouts, strict=False):
            self._adapter_layouts.setdefault(name, layout)

    def check(self, spec: ModelSpec) -> None:
        """Raises `ModelFileError`, or `AdapterFilesError` for adapters alone, where a file is another one by now."""
        if self._model_layout and fingerprint(spec) not in self._model_layout:
            raise ModelFileError(f"model {spec.name!r}: its files have changed since they were loaded; {_REMEDY}")
        changed = {
            one.name: f"adapter {one.name!r}: its files have changed since they were loaded; {_REMEDY}"
            for one in spec.adapters
            if self._has_changed(one)
        }
        if changed:
            raise AdapterFilesError(changed)

    def _has_changed(self, adapter: AdapterSpec) -> bool:
        layout = self._adapter_layouts.get(adapter.name)
        if layout is None:
            return False
        try:
            return fingerprint(adapter) not in layout
        except ModelFileError:
            return False  # whoever reads them says why they cannot be read
