"""Starts a vLLM with a model and the arguments that the configuration decides; says why where it does not serve."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from gpu_node.engine.border.model import LoadedModel
from gpu_node.executors.memory.kv_identity import adapter_weights, image_weights
from gpu_node.vllm.blocks.transit import FOLDER, Transit
from gpu_node.vllm.inside.core import VllmCore
from gpu_node.vllm.inside.core_adapters import CoreAdapter, core_adapters, max_rank, num_slots
from gpu_node.vllm.inside.core_model import core_model, takes_pictures
from gpu_node.vllm.inside.picture_reader import PictureReader, picture_arguments
from gpu_node.vllm.inside.pooling import hold_whole_texts, pooling_arguments
from gpu_node.vllm.inside.waiting import wait_asleep
from gpu_node.vllm.installation.environment import ERRORS, copy_from_now_on, is_eager, may_copy
from gpu_node.vllm.installation.installed import VllmError
from gpu_node.vllm.words.border import CoreEvent, ModelRefusedError
from gpu_node.vllm.words.reasons import first_error, one_line
from gpu_node.vllm.words.vllm_names import EngineArgs, Executor, FlexibleArgumentParser, KVTransferConfig, SyncMPClient
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.files.model_file import ModelFileError, checked_path

_PARENT = __name__.rpartition(".serving.")[0]  # by names vLLM finds what is ours
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")  # the first that there are
AUTO_LENGTH = -1  # vLLM's word for as long as model and memory allow


class CoreStarter:
    """Of one node."""

    def __init__(
        self, node: NodeSpec, options: EngineOptions, folder: Path, tell: Callable[[str, CoreEvent], None]
    ) -> None:
        """``tell`` hears of each model's steps. `VllmError` where the node has arguments that vLLM does not know."""
        self._node = node
        self._options = options
        self._folder = folder
        self._tell = tell
        self._own_arguments = _parsed(node.vllm_options.args)
        self._numbers = itertools.count()

    @property
    def device(self) -> str:
        """What is learnt here holds for nodes that call themselves the same."""
        return f"vllm-{_device_name(self._node)}"

    def start(self, spec: ModelSpec) -> tuple[VllmCore, LoadedModel]:
        """Takes as long as a load. `ModelRefusedError` has vLLM's own reason, in one line."""
        number = next(self._numbers)
        try:
            path = checked_path(spec)
            if not path.is_dir():
                raise ModelRefusedError(
                    f"{path}: vLLM reads directories in Hugging Face layout alone; `treadle models export` makes one"
                )
            adapters = core_adapters(spec, path)
            weights = "".join((image_weights(spec), *adapter_weights(spec)))
            pooling = pooling_arguments(spec, path, self._node.tensor_parallel, self._own_arguments.hf_overrides)
            with _refusing(spec, self._folder / ERRORS):
                config = self._arguments(spec, path, adapters, pooling, number).create_engine_config()
                if may_copy(self._node):
                    copy_from_now_on()
                    wait_asleep()
                pictures = PictureReader(config) if takes_pictures(spec, config) else None
                client = SyncMPClient(config, Executor.get_class(config), log_stats=True)
        except ModelFileError as error:
            raise ModelRefusedError(str(error)) from error
        num_bytes = sum(weights_bytes(one) for one in (path, *(adapter.path for adapter in adapters)))
        core = self._core(spec, client, num_bytes, adapters, pictures, number)
        try:
            with _refusing(spec, self._folder / ERRORS):
                core.load_adapters()
        except ModelRefusedError:
            core.close()
            raise
        return core, core_model(spec, client.vllm_config, self._options.max_num_seqs, weights)

    def _core(
        self,
        spec: ModelSpec,
        client: SyncMPClient,
        num_bytes: int,
        adapters: Sequence[CoreAdapter],
        pictures: PictureReader | None,
        number: int,
    ) -> VllmCore:
        keeps_kv = self._keeps_kv(spec)
        transit = Transit(self._kv_folder(number), self._node.tensor_parallel) if keeps_kv else None
        tell = partial(self._tell, spec.name)
        return VllmCore(client, spec.name, num_bytes, tell, transit, adapters, pictures)

    def _keeps_kv(self, spec: ModelSpec) -> bool:
        """vLLM has a request's way back to its KV among the parameters of draws, which its pooling does not have."""
        return self._node.keeps_kv and spec.task == "generate"

    def _kv_folder(self, number: int) -> Path:
        return self._folder / f"kv-{number}"

    def _arguments(
        self, spec: ModelSpec, path: Path, adapters: Sequence[CoreAdapter], pooling: dict[str, Any], number: int
    ) -> EngineArgs:
        """What the node says, and over it what is decided: vLLM looks at some as soon as it has them together."""
        decided = self._decided(spec, path) | self._room_for(adapters) | picture_arguments(spec, path) | pooling
        if self._keeps_kv(spec):
            decided["kv_transfer_config"] = KVTransferConfig(
                kv_connector="KeptBlocks",
                kv_connector_module_path=f"{_PARENT}.blocks.kept_blocks",
                kv_role="kv_both",
                kv_connector_extra_config={FOLDER: str(self._kv_folder(number))},
                kv_load_failure_policy="recompute",
            )
        unknown = decided.keys() - {field.name for field in dataclasses.fields(EngineArgs)}
        assert not unknown, f"vLLM has no arguments {unknown}"
        arguments = EngineArgs.from_cli_args(argparse.Namespace(**vars(self._own_arguments) | decided))
        if spec.task != "generate":
            hold_whole_texts(arguments)
        return arguments

    def _decided(self, spec: ModelSpec, path: Path) -> dict[str, Any]:
        """What is not the node's own to say (`shared.config.nodes.vllm.OWNED_ARGUMENTS`)."""
        options, is_cpu = self._options, not self._node.cuda_devices
        is_text = spec.task == "generate"
        overlaps = is_text and not is_cpu  # of steps without draws vLLM makes none faster by it
        decided: dict[str, Any] = {
            "model": str(path),
            "tokenizer": str(path),
            "skip_tokenizer_init": True,
            "served_model_name": [spec.name],
            "trust_remote_code": False,
            "generation_config": "vllm",
            "load_format": spec.load_format,
            "use_tqdm_on_load": False,  # its lines are text
            "max_model_len": spec.max_model_len or AUTO_LENGTH,
            "max_num_seqs": options.max_num_seqs,
            "max_num_batched_tokens": max(options.step_tokens, options.max_num_seqs),
            "tensor_parallel_size": self._node.tensor_parallel,
            "scheduling_policy": "priority",
            "scheduler_cls": f"{_PARENT}.inside.step_scheduler.{'AsyncStepScheduler' if overlaps else 'StepScheduler'}",
            "logits_processors": [f"{_PARENT}.inside.own_draws:OwnDraws"] if is_text else None,
            "async_scheduling": overlaps,
            "enable_sleep_mode": not is_cpu,  # which vLLM refuses on processors
            "disable_log_stats": False,
        }
        if is_cpu or options.kv_cache_bytes is not None:
            decided["kv_cache_memory_bytes"] = options.unmeasured_kv_bytes
        else:
            decided["gpu_memory_utilization"] = options.device_memory_share
        if is_eager(self._node):
            decided["enforce_eager"] = True  # compiling takes minutes
        return decided

    def _room_for(self, adapters: Sequence[CoreAdapter]) -> dict[str, Any]:
        """A model without adapters pays nothing for them."""
        if not adapters:
            return {"enable_lora": False}
        num = num_slots(len(adapters), is_cpu=not self._node.cuda_devices)
        return {"enable_lora": True, "max_loras": num, "max_cpu_loras": num, "max_lora_rank": max_rank(adapters)}


class _Parser(FlexibleArgumentParser):  # type: ignore[misc]
    def error(self, message: str) -> NoReturn:
        raise VllmError(f"vllm.args: {message}")


def _parsed(args: list[str]) -> argparse.Namespace:
    parsed: argparse.Namespace = EngineArgs.add_cli_args(_Parser(add_help=False)).parse_args(args)
    return parsed


@contextmanager
def _refusing(spec: ModelSpec, errors: Path) -> Iterator[None]:
    """Whatever vLLM raises on the way, the node lives on; the first error of its processes is the reason of all."""
    num_before = errors.stat().st_size if errors.exists() else 0
    try:
        yield
    except Exception as error:
        written = errors.read_bytes()[num_before:].decode("utf-8", "replace") if errors.exists() else ""
        reason = first_error(written) or one_line(str(error)) or type(error).__name__
        raise ModelRefusedError(f"model {spec.name!r}: vLLM does not serve it here: {reason}") from error


def weights_bytes(folder: Path) -> int:
    """Of a model's directory: vLLM keeps weights in the types that its files have."""
    found = next(filter(None, (list(folder.glob(pattern)) for pattern in WEIGHTS)), [])
    return sum(path.stat().st_size for path in found)


def _device_name(node: NodeSpec) -> str:
    if not node.cuda_devices:
        return "cpu"
    import torch

    return torch.cuda.get_device_name(0).lower().replace(" ", "-")
