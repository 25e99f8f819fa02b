"""All that is used of vLLM 0.32, by name; nothing else imports it. Most of it is not vLLM's public interface.

When another version is to be spoken to (`shared.config.nodes.vllm.VLLM_VERSION`), this is the list of what to look at.
"""

from __future__ import annotations

from vllm import PoolingParams, SamplingParams
from vllm.config import KVTransferConfig, PoolerConfig
from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.multimodal.media.image import ImageMediaIO
from vllm.multimodal.utils import argsort_mm_positions
from vllm.renderers import renderer_from_config
from vllm.sampling_params import StructuredOutputsParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from vllm.v1.engine.core_client import SyncMPClient
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.executor.abstract import Executor
from vllm.v1.request import RequestStatus
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

__all__ = [
    "AsyncScheduler",
    "BatchUpdate",
    "EngineArgs",
    "EngineCoreOutput",
    "EngineCoreOutputs",
    "EngineCoreRequest",
    "EngineDeadError",
    "Executor",
    "FlexibleArgumentParser",
    "ImageMediaIO",
    "KVConnectorBase_V1",
    "KVConnectorMetadata",
    "KVConnectorRole",
    "KVTransferConfig",
    "LoRARequest",
    "LogitsProcessor",
    "MoveDirectionality",
    "MultiModalFeatureSpec",
    "PoolerConfig",
    "PoolingParams",
    "RequestStatus",
    "SamplingParams",
    "Scheduler",
    "SchedulerOutput",
    "SpinCondition",
    "StructuredOutputBackend",
    "StructuredOutputGrammar",
    "StructuredOutputsParams",
    "SyncMPClient",
    "argsort_mm_positions",
    "renderer_from_config",
]
