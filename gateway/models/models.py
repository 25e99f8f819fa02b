"""The served models, as far as the gateway needs them: tokenizer, chat template and context length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from gateway.models.chat_template import ChatTemplate
from gateway.models.gguf_model import read_gguf
from gateway.models.hf_model import read_directory
from gateway.models.model_parts import ModelParts
from gateway.models.own_sampling import own_sampling
from gateway.models.pictures.picture_form import PictureForm
from gateway.models.score_form import ScoreForm, score_form
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from gateway.reasoning.marks import ReasoningMarks, marks_of
from gateway.tools.notation import HERMES, Notation, notation_of
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec, ModelTask
from shared.config.engines.model_changes import weights_mark
from shared.config.engines.sampling import NO_SAMPLING, SamplingDefaults
from shared.files.all_files import checked_paths
from shared.files.classifier import ClassLabels, read_class_labels
from shared.files.encoder import encoder_problem, encoder_task_problem
from shared.files.model_file import ModelFileError
from shared.files.model_length import model_length
from shared.files.model_sizes import read_sizes


@dataclass(frozen=True)
class ServedModel:
    """One model, or an adapter of one, under one name."""

    name: str
    tokenizer: PromptTokenizer
    template: ChatTemplate | None
    """None for a base model, which has no chat."""
    max_model_len: int
    tool_template: ChatTemplate | None = None
    """For conversations with functions; None where there is no other for them."""
    notation: Notation = HERMES
    """How it writes calls of functions."""
    reasoning: ReasoningMarks | None = None
    """How it marks thoughts before its answer; None for a model that only answers."""
    task: ModelTask = "generate"
    """What it is served for."""
    score: ScoreForm | None = None
    """How it is asked for scores, where it is served for them."""
    labels: ClassLabels | None = None
    """What its logits stand for, where it is served to classify."""
    pictures: PictureForm | None = None
    """How it is shown images; None where it takes none."""
    sampling: SamplingDefaults = NO_SAMPLING
    """How tokens are drawn where a request does not say."""
    base: ServedModel | None = field(default=None, repr=False)
    """The model that it is an adapter of, with which it has all but the name in common; None of a model itself."""
    weights: str = ""
    """As in `Payload`."""
    _shown: dict[tuple[str, ...], list[bytes]] = field(default_factory=dict, repr=False)  # by marks that are shown

    @property
    def model(self) -> str:
        """The name by which queue and nodes know the weights: an adapter is its model's to them."""
        return self.name if self.base is None else self.base.name

    @property
    def adapter(self) -> str:
        """Which adapter of `model` it is; ``""`` for the model itself."""
        return "" if self.base is None else self.name

    @cached_property
    def control_markers(self) -> dict[str, int]:
        """Marks of calls that are control tokens of it, with their ids."""
        return self.tokenizer.textless_ids(self.notation.markers)

    @cached_property
    def thought_markers(self) -> dict[str, int]:
        """Texts of its marks of thoughts that are control tokens of it, with their ids."""
        return {} if self.reasoning is None else self.tokenizer.textless_ids(self.reasoning.markers)

    def shown_token_bytes(self, *, calls: bool, thoughts: bool) -> list[bytes]:
        """As ``tokenizer.token_bytes``, with the texts of marks of calls and of thoughts, so that they can be seen."""
        if self.base is not None:
            return self.base.shown_token_bytes(calls=calls, thoughts=thoughts)  # one copy for all adapters
        markers = self.notation.markers if calls else ()
        if thoughts and self.reasoning is not None:
            markers += self.reasoning.markers
        textless = self.tokenizer.textless_ids(markers)
        if not textless:
            return self.tokenizer.token_bytes
        if markers not in self._shown:
            self._shown[markers] = shown = list(self.tokenizer.token_bytes)
            for text, token_id in textless.items():
                shown[token_id] = text.encode()
        return self._shown[markers]


def load_models(config: ClusterConfig) -> dict[str, ServedModel]:
    """All models of the configuration and their adapters, by name, each model before its own; a model also by its
    aliases. As `read_models`."""
    return named_models(config.models, read_models(config, config.models))


def named_models(specs: Iterable[ModelSpec], models: Mapping[str, ServedModel]) -> dict[str, ServedModel]:
    """``models`` by all their names, those of their adapters included."""
    named: dict[str, ServedModel] = {}
    for spec in specs:
        base = models[spec.name]
        named |= dict.fromkeys((spec.name, *spec.aliases), base)
        for adapter in spec.adapters:
            mark = weights_mark(spec, adapter)
            named[adapter.name] = replace(base, name=adapter.name, base=base, weights=mark)
    return named


def read_models(config: ClusterConfig, specs: Sequence[ModelSpec]) -> dict[str, ServedModel]:
    """Models by their names, as nodes of ``config`` serve them. A file or directory that several share is read once.

    Takes seconds for each. Raises `ModelFileError` for all that is missing or damaged at once, or for what is unusable.
    """
    paths = checked_paths(specs)
    sources: dict[Path, ModelParts] = {}
    models: dict[str, ServedModel] = {}
    takes_pictures = any(node.kind == "vllm" for node in (*config.nodes, *config.pools))  # our engine reads none
    for spec in specs:
        path = paths[spec.name]
        if path not in sources:
            sources[path] = read_parts(path)
        parts = sources[path]
        length = length_of(spec, parts, path, config)
        telling = parts.tool_template or parts.template
        is_told = telling is not None and telling.takes_tools  # else functions are told in the form of Hermes
        notation = notation_of(telling.source if telling is not None and is_told else "", spec.tool_calls)
        reasoning = marks_of("" if parts.template is None else parts.template.source, spec.reasoning)
        models[spec.name] = ServedModel(
            spec.name,
            parts.tokenizer,
            parts.template,
            length,
            parts.tool_template,
            notation,
            reasoning,
            spec.task,
            score_form(spec, parts, path) if spec.task == "score" else None,
            read_class_labels(path) if spec.task == "classify" else None,
            parts.pictures if spec.task == "generate" and takes_pictures else None,
            own_sampling(spec.sampling, parts.sampling_file, parts.sampling_names)
            if spec.task == "generate"
            else NO_SAMPLING,
            weights=weights_mark(spec),
        )
    return models


def read_parts(path: Path) -> ModelParts:
    """Tokenizer and template of the file or directory at ``path``; `ModelFileError` for what cannot be used."""
    return read_directory(path) if path.is_dir() else read_gguf(path)


def length_of(spec: ModelSpec, parts: ModelParts, path: Path, config: ClusterConfig) -> int:
    """The most tokens of prompt and answer together; `ModelFileError` where more is configured than the files say, and
    for an encoder that cannot be served as it is configured."""
    nodes = [*config.nodes, *config.pools]
    if parts.is_encoder:
        is_ours = any(node.kind != "vllm" for node in nodes)
        if problem := encoder_problem(spec, config.engine) if is_ours else encoder_task_problem(spec):
            raise ModelFileError(f"{path}: {problem}")
    if spec.max_model_len is None:
        return model_length(spec, read_sizes(path), nodes, config.engine)
    if parts.context_length is not None and spec.max_model_len > parts.context_length:
        raise ModelFileError(
            f"model {spec.name!r}: max_model_len is {spec.max_model_len}, but {path} was trained for "
            f"{parts.context_length} tokens; set at most that, or leave max_model_len out"
        )
    return spec.max_model_len
