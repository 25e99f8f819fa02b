"""Which pipeline an engine runs of a model (`EngineOptions.pipeline`), in the standard library alone.

``auto`` looks among the pipelines of a folder for one that was searched for just this, and takes the one that is
predicted to be fastest, if that is faster than one operator after another. On a device it passes over those that rest
on what is published of another one. A file is taken whatever it predicts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from shared.config.engines.engine import AUTO_PIPELINE, NO_PIPELINE, EngineOptions, ModelSpec
from shared.config.pipelines.pipeline_file import PUBLISHED, PipelineFile, read_pipeline

MAX_PIPELINES = 256
"""Files of a folder that are looked at."""


def pipelines_folder(data_dir: Path) -> Path:
    """Where ``auto`` looks."""
    return data_dir.expanduser() / "pipelines"


def cpu_name(num_threads: int) -> str:
    """The CPU device as a pipeline's device: with other threads, other shares of it are best."""
    return f"cpu:{num_threads}"


def card_name(card: str) -> str:
    """A CUDA device as the catalogue calls it: ``a100`` for ``NVIDIA A100-SXM4-80GB``; else as it calls itself."""
    found = re.search(r"\b[a-z]{1,2}\d{2,4}\b", card.lower())
    return found[0] if found else card


@dataclass(frozen=True, slots=True)
class Pipelines:
    """The pipelines that an engine may run, read where it starts."""

    choice: str = NO_PIPELINE
    """`EngineOptions.pipeline`."""
    rows: int = 0
    """Of the largest step."""
    files: tuple[PipelineFile, ...] = ()

    def of(self, spec: ModelSpec, device: str, num_devices: int = 1, kernels: str | None = None) -> PipelineFile | None:
        """The one to run. `PipelineError` where the file that was named is for something else, or stale.

        ``kernels`` are the device's; None where they are not known yet.
        """
        if self.choice == NO_PIPELINE:
            return None
        if self.choice != AUTO_PIPELINE:
            (named,) = self.files
            named.require(_searched_name(spec), device, num_devices, self.rows)
            if kernels is not None:
                named.require_kernels(kernels)
            return named
        fastest = min(self._fitting(spec, device, num_devices, kernels), key=lambda one: one.layer_s, default=None)
        return fastest if fastest is not None and fastest.layer_s < fastest.sequential_s else None

    @property
    def for_predicted(self) -> Pipelines:
        """What a predicted device may choose among: its times are published ones, so no measured pipeline is about it.

        A file that was named stays, to be refused.
        """
        if self.choice != AUTO_PIPELINE:
            return self
        return replace(self, files=tuple(one for one in self.files if one.profile == PUBLISHED))

    def lacks(self, spec: ModelSpec, device: str, num_devices: int = 1, kernels: str | None = None) -> bool:
        """Whether ``auto`` knows of no pipeline for this, neither a faster nor a slower one, but for stale ones."""
        return self.choice == AUTO_PIPELINE and not self._fitting(spec, device, num_devices, kernels)

    def _fitting(self, spec: ModelSpec, device: str, num_devices: int, kernels: str | None) -> list[PipelineFile]:
        wanted = _searched_name(spec), device, num_devices, self.rows
        fitting = [one for one in self.files if (one.model, one.device, one.num_devices, one.rows) == wanted]
        if kernels is None:
            return fitting
        # live: what an A100 gives up for attention says nothing of others (docs/log/nvidia.md)
        return [one for one in fitting if one.is_by(kernels) and one.is_of_its_device]


NO_PIPELINES = Pipelines()
"""One operator after another."""


def read_pipelines(options: EngineOptions, folder: Path) -> Pipelines:
    """Read what ``options`` ask for. `PipelineError` says what is wrong with a file, and what to do."""
    if options.pipeline == NO_PIPELINE:
        return NO_PIPELINES
    if options.pipeline != AUTO_PIPELINE:
        return Pipelines(options.pipeline, options.step_tokens, (read_pipeline(Path(options.pipeline).expanduser()),))
    paths = sorted(folder.glob("*.json"))[:MAX_PIPELINES] if folder.is_dir() else []
    return Pipelines(AUTO_PIPELINE, options.step_tokens, tuple(map(read_pipeline, paths)))


def _searched_name(spec: ModelSpec) -> str:
    """As the catalogue calls a model of its size."""
    return spec.predict_as or spec.name
