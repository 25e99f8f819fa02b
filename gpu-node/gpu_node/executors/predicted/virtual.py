"""A device that is not there: models run on it as published numbers say, and answer in words.

Durations and sizes are those of a device of its kind (`shared.config.hardware`). Tokens are words of the model's own
vocabulary, drawn from the request's seed, so its tokenizer decodes them; answers end after lengths as in ShareGPT. Full
steps go through the pipeline that the node is told (`engine.pipeline`), as simulated devices have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpu_node.engine.border.executor import ComputedStep, ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import Draw, StepPlan
from gpu_node.engine.border.sizing import MAX_CONTEXT_LENGTH
from gpu_node.executors.draws.counter import uniform
from gpu_node.executors.memory.host_tier import HOST
from gpu_node.executors.piped import NOT_FOR_ENCODERS
from gpu_node.executors.predicted.executor import PipedCost, PredictedExecutor
from gpu_node.executors.predicted.lengths import SHAREGPT_OUTPUT
from gpu_node.executors.predicted.made_up import MadeUpTokens
from gpu_node.executors.predicted.made_up_embedding import made_up_embedding
from gpu_node.executors.predicted.models import PredictedModels
from gpu_node.executors.unguessed import refuse_speculation
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.pooling.encoder_check import check_encoder
from gpu_node.models.served_program import served_program
from gpu_node.models.shape import shape_of
from gpu_node.models.words import Words, read_words
from shared.config import hardware
from shared.config.engines.engine import MIN_MODEL_LEN, EngineOptions, ModelSpec
from shared.config.hardware import ModelShape
from shared.config.pipelines.pipeline_file import PipelineError
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines
from shared.files.classifier import read_class_labels
from shared.files.encoder import own_step_tokens, step_length
from shared.files.model_file import ModelFileError, checked_path
from shared.files.model_sizes import read_context_length, read_is_encoder
from shared.messages.requests.token_logprob import TokenLogprob
from shared.pipelines.step_pipeline import StepPipeline

_WEIGHT_BYTES = {"bfloat16": 2.0, "int8": 1.0}
_NUM_LABELS = 2  # no and yes
_LEAST = 2.0**-53  # a length has no probability of 0
_LENGTH_POSITION = -1  # of the number that says how long an answer is; those that draw its tokens count from 0


class VirtualExecutor:
    """Takes no time itself; `PacedExecutor` makes it take what its device would."""

    def __init__(self, device: str, options: EngineOptions, pipelines: Pipelines = NO_PIPELINES) -> None:
        """``device`` is one of `shared.config.hardware.DEVICES`; ``pipelines``: those that its models may run."""
        self.device = device
        self._hardware = hardware.device_named(device)
        self._options = options
        self._pipelines = pipelines.for_predicted
        self._words: dict[str, Words] = {}
        self._embedding_columns: dict[str, int] = {}  # of models that embed or score
        self._models = PredictedModels(self._predicted, options)

    @property
    def tiers(self) -> dict[str, str]:
        """Where weights would be."""
        return self._models.tiers

    def load_s(self, spec: ModelSpec) -> float:
        """Seconds to load it from where its weights would be now. Raises `ModelFileError`."""
        source: hardware.Source = "host" if self.tiers.get(spec.name) == HOST else "disk"
        return hardware.load_s(self._hardware, model_shape(spec), source)

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Read the vocabulary. KV memory is what the device has beside the weights, whatever ``kv_cache_bytes`` says.

        Raises `ModelFileError` or `ModelTooLargeError`; then nothing has changed.
        """
        path = checked_path(spec)
        refuse_speculation(spec, path)
        is_encoder = read_is_encoder(path)
        if is_encoder:
            check_encoder(spec, open_checkpoint(path), self._options)
        pipeline = self._pipeline(spec)
        model = self._models.load_model(spec, instead_of)
        if spec.task != "generate":
            if spec.predict_as is None:
                served_program(spec, open_checkpoint(checked_path(spec)))  # which refuses what no device can serve
            self._embedding_columns[spec.name] = _num_columns(spec, path)
        vocab_size = self._words_of(spec).vocab_size
        step_tokens = own_step_tokens(self._options, is_encoder=is_encoder)
        return replace(
            model,
            vocab_size=vocab_size,
            task=spec.task,
            is_encoder=is_encoder,
            step_tokens=step_tokens,
            pipeline_rows=pipeline.file.rows if pipeline is not None else 0,
            lacks_pipeline=not is_encoder and self._pipelines.lacks(spec, self.device),
        )

    def _pipeline(self, spec: ModelSpec) -> StepPipeline | None:
        """What full steps go through. `ModelFileError` where the one that was named is for something else."""
        try:
            file = self._pipelines.of(spec, self.device)
            if file is None:
                return None
            if read_is_encoder(checked_path(spec)):
                raise PipelineError(NOT_FOR_ENCODERS)
            return StepPipeline.of(file, model_shape(spec))
        except PipelineError as error:
            raise ModelFileError(f"engine.pipeline: {error}") from error

    def _words_of(self, spec: ModelSpec) -> Words:
        """Read once: they are kept, unlike weights, when the model leaves."""
        if spec.name not in self._words:
            self._words[spec.name] = read_words(checked_path(spec))
        return self._words[spec.name]

    def _predicted(self, spec: ModelSpec) -> PredictedExecutor:
        """Its logprobs are over a vocabulary in which token n is word n."""
        shape = model_shape(spec)
        length = spec.max_model_len or MIN_MODEL_LEN
        if not hardware.fits(self._hardware, shape, length):
            raise ModelTooLargeError(
                f"model {spec.name!r}, of the size of {shape.name}, has weights of {shape.load_bytes / 1e9:.1f} GB; "
                f"the memory of {self.device} ({self._hardware.memory_bytes / 1e9:.0f} GB) has no room beside them for "
                f"a sequence of {length} tokens"
            )
        kv_cache_bytes = int(hardware.kv_bytes(self._hardware, shape))
        words = self._words_of(spec)
        plain, pipeline = hardware.step_cost(self._hardware, shape), self._pipeline(spec)
        return PredictedExecutor(
            plain if pipeline is None else PipedCost(plain, pipeline),
            replace(self._options, kv_cache_bytes=kv_cache_bytes),
            shape.kv_token_bytes,
            len(words.token_ids),
            hardware.kv_bytes_per_s(self._hardware),
            context_length=self._context_length(spec),
            tokens=MadeUpTokens(words.token_ids, words.vocab_size, end_tokens),
        )

    def _context_length(self, spec: ModelSpec) -> int:
        """Of the model's own files, whatever size it is predicted at; it matters where the configuration says no
        length."""
        if spec.max_model_len is not None:
            return MAX_CONTEXT_LENGTH
        path = checked_path(spec)
        length = read_context_length(path)
        return min(length, step_length(self._options)) if read_is_encoder(path) else length

    def unload_model(self, name: str) -> None:
        """It is known to be in host memory, as long as it would be."""
        self._models.unload_model(name)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """No content, but the time that it would take."""
        return self._models.read_blocks(model, blocks, swapped_out=swapped_out)

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """No content, but the time that it would take."""
        return self._models.write_blocks(model, blocks, content)

    def submit(self, plan: StepPlan) -> ComputedStep:
        """Predict the step, and say its logprobs in words."""
        result = self._models.submit(plan).computed
        words = self._words[plan.model].token_ids
        logprobs = {sequence_id: _in_words(one, words) for sequence_id, one in result.logprobs.items()}
        return ComputedStep(replace(result, logprobs=logprobs, embeddings=self._embeddings(plan)))

    def _embeddings(self, plan: StepPlan) -> dict[int, bytes]:
        num_columns = self._embedding_columns.get(plan.model)
        if num_columns is None:
            return {}
        ended = [part for part in plan.sequences if part.draws]
        return {part.sequence_id: made_up_embedding(part.token_ids, num_columns) for part in ended}


def model_shape(spec: ModelSpec) -> ModelShape:
    """Sizes of the model that the configuration names (``predict_as``), else of the model itself.

    Raises `ModelFileError` where that cannot be read.
    """
    if spec.predict_as is not None:
        return hardware.model_named(spec.predict_as)
    return shape_of(spec.name, open_checkpoint(checked_path(spec)).config, _WEIGHT_BYTES[spec.weights])


def end_tokens(draw: Draw) -> Sequence[int]:
    """What ends the answer, once it is as long as the request's seed says; nothing before, or where nothing ends it.

    Lengths are distributed as those of answers in ShareGPT: a request that sets no limit ends by itself.
    """
    sampling = draw.sampling
    if not sampling.stop_token_ids:
        return ()
    probability = max(uniform(sampling.seed, _LENGTH_POSITION, draw.choice), _LEAST)
    return sampling.stop_token_ids if draw.position >= SHAREGPT_OUTPUT.tokens(probability) else ()


def _in_words(logprob: TokenLogprob, words: Sequence[int]) -> TokenLogprob:
    return TokenLogprob(logprob.logprob, [(words[number], value) for number, value in logprob.top])


def _num_columns(spec: ModelSpec, path: Path) -> int:
    """Numbers of what a text becomes."""
    match spec.task:
        case "embed":
            return model_shape(spec).hidden_size
        case "classify":
            return len(read_class_labels(path).names)
        case _:
            return _NUM_LABELS
