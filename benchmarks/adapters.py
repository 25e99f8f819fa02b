"""What adapters of one model win over models of their own on the CPU device, and what they cost.

The same requests, spread over N fine-tuned variants of a model, are answered by one engine in two ways: N adapters over
one set of weights, whose requests run in one batch; and N models (merged, as one would have them without adapters),
which the engine swaps from host memory, each answering its requests together. Beside them the model alone, without
adapters, and with adapters that nobody asks for: what they cost then. Ways take turns, medians of rounds count. Prints
one JSON line.

    python benchmarks/adapters.py --variants 1 4 8 --requests 16 --prompt 64 --answer 32 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import save_file

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.kernels.cpu import kernels_name
from gpu_node.models.adapters.adapters import adaptable
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import Checkpoint, open_checkpoint
from gpu_node.models.hf.hf_names import prefix, stored
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import checked_path
from shared.messages.requests.payload import Payload, Sampling

SIZE = 0.02
"""Of the random numbers of A and B."""


@dataclass(frozen=True)
class Way:
    """How requests for variants are served."""

    engine: Engine
    models: Sequence[ModelSpec]
    """Served in this order; one, where variants are its adapters."""

    def run(self, payloads: Sequence[Payload]) -> float:
        """Seconds until all are answered; a model that is not loaded comes from host memory first."""
        started_s = time.perf_counter()
        for spec in self.models:
            self.engine.load_model(spec)  # nothing, where it is there
            for payload in payloads:
                if payload.model == spec.name:
                    refused = self.engine.add(payload)
                    assert not refused, refused
            while self.engine.has_work:
                self.engine.step(time.perf_counter())
        return time.perf_counter() - started_s


def save_adapter(folder: Path, checkpoint: Checkpoint, rank: int, seed: int) -> int:
    """Save random matrices for all linear layers of a model; their numbers."""
    numbers = np.random.default_rng(seed)
    tensors = {}
    for name, (outputs, inputs) in adaptable(build_program(checkpoint.config)).items():
        (place,) = stored(name, checkpoint.config).names
        module = f"base_model.model.{prefix(checkpoint.config.family)}{place.removesuffix('.weight')}"
        for letter, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            tensors[f"{module}.lora_{letter}.weight"] = SIZE * numbers.standard_normal(shape, dtype=np.float32)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}))
    return sum(values.size for values in tensors.values())


def payloads(arguments: argparse.Namespace, names: Sequence[tuple[str, str]]) -> list[Payload]:
    """Requests that ask for the variants (model, adapter) in turn."""
    numbers = np.random.default_rng(5)
    sampling = Sampling(max_tokens=arguments.answer, temperature=0.0, ignore_eos=True)
    return [
        Payload(
            str(number),
            0,
            "g",
            model,
            numbers.integers(100, 20_000, arguments.prompt).tolist(),
            sampling,
            adapter=adapter,
        )
        for number in range(arguments.requests)
        for model, adapter in [names[number % len(names)]]
    ]


def ways(
    arguments: argparse.Namespace, spec: ModelSpec, adapters: Sequence[AdapterSpec]
) -> Iterator[tuple[str, Way, list[Payload]]]:
    """Each with its requests."""

    def way(*models: ModelSpec) -> Way:
        options = EngineOptions(
            kv_cache_bytes=256 << 20,
            max_num_seqs=arguments.requests,
            host_models=max(1, len(models) - 1),
            async_scheduling=True,
        )
        engine = Engine(CpuExecutor(options, arguments.threads), options)
        for one in models:  # all have been loaded once
            engine.load_model(one)
        return Way(engine, models)

    yield "alone", way(spec), payloads(arguments, [(spec.name, "")])
    with_adapters = way(replace(spec, adapters=tuple(adapters)))
    yield "unused", with_adapters, payloads(arguments, [(spec.name, "")])
    for number in arguments.variants:
        names = [one.name for one in adapters[:number]]
        yield f"adapters_{number}", with_adapters, payloads(arguments, [(spec.name, name) for name in names])
        models = [replace(spec, name=f"merged-{name}") for name in names]
        yield f"models_{number}", way(*models), payloads(arguments, [(one.name, "") for one in models])


def measure(arguments: argparse.Namespace, spec: ModelSpec, folder: Path) -> Mapping[str, object]:
    """By turns; tokens a second of each way, and ratios of ways in the same round."""
    checkpoint = open_checkpoint(checked_path(spec))
    most = max(arguments.variants)
    for number in range(most):
        num_numbers = save_adapter(folder / f"a{number}", checkpoint, arguments.rank, number)
    adapters = [AdapterSpec(f"a{number}", str(folder / f"a{number}")) for number in range(most)]
    all_ways = list(ways(arguments, spec, adapters))
    times: dict[str, list[float]] = {name: [] for name, _, _ in all_ways}
    for round_number in range(arguments.rounds + 1):
        for name, way, asked in all_ways:
            seconds = way.run([replace(one, request_id=f"{round_number} {one.request_id}") for one in asked])
            if round_number:  # the first is to warm up
                times[name].append(seconds)
    num_tokens = arguments.requests * arguments.answer
    ratios = {
        f"adapters_to_models_{number}": ratio(times, f"models_{number}", f"adapters_{number}")
        for number in arguments.variants
    }
    return {
        "tokens_per_s": {name: round(num_tokens / statistics.median(one), 1) for name, one in times.items()},
        **ratios,
        "unused_to_alone": ratio(times, "alone", "unused"),
        **{f"adapters_{n}_to_alone": ratio(times, "alone", f"adapters_{n}") for n in arguments.variants},
        "adapter_numbers": num_numbers,
        "model_numbers": sum(weight.num_numbers for weight in build_program(checkpoint.config).weights),
    }


def ratio(times: Mapping[str, Sequence[float]], slower: str, quicker: str) -> float:
    """How many times as fast the latter is: the median over rounds."""
    return round(statistics.median(a / b for a, b in zip(times[slower], times[quicker], strict=True)), 3)


def main() -> None:
    """Make the adapters, take turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--answer", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    spec = replace(ClusterConfig().models[0], max_model_len=arguments.prompt + arguments.answer)
    with TemporaryDirectory() as folder:
        found = measure(arguments, spec, Path(folder))
    about = {name: value for name, value in vars(arguments).items() if name != "variants"}
    print(json.dumps({**about, "kernels": kernels_name().split()[0], **found, "load": round(os.getloadavg()[0], 2)}))


if __name__ == "__main__":
    main()
