"""The served models, as far as the gateway needs them: tokenizer, chat template and context length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFReader

from gateway.chat_template import ChatTemplate, ChatTemplateError
from gateway.tokenizer import PromptTokenizer
from gateway.vocabulary import read_vocabulary
from shared.config import ClusterConfig, ModelSpec
from shared.model_file import ModelFileError, checked_path, open_gguf


@dataclass(frozen=True)
class ServedModel:
    """One model under one name."""

    name: str
    tokenizer: PromptTokenizer
    template: ChatTemplate | None
    """None for a base model, which has no chat."""
    max_model_len: int


@dataclass(frozen=True)
class _ModelFile:
    tokenizer: PromptTokenizer
    template: ChatTemplate | None
    context_length: int | None


def load_models(config: ClusterConfig) -> dict[str, ServedModel]:
    """All models of the configuration, by name. A file that several of them share is read once.

    Takes seconds for each file. Raises `ModelFileError` for a file that is missing, damaged or unusable.
    """
    files: dict[Path, _ModelFile] = {}
    models = {}
    for spec in config.models:
        path = checked_path(spec)
        if path not in files:
            files[path] = _read(path)
        models[spec.name] = _served(spec, files[path], path)
    return models


def _read(path: Path) -> _ModelFile:
    reader = open_gguf(path)
    tokenizer = PromptTokenizer(read_vocabulary(reader, path))
    architecture = _text_or_none(reader, "general.architecture")
    length = reader.get_field(f"{architecture}.context_length")
    return _ModelFile(
        tokenizer=tokenizer,
        template=_template(reader, path, tokenizer),
        context_length=None if length is None else int(length.contents()),
    )


def _template(reader: GGUFReader, path: Path, tokenizer: PromptTokenizer) -> ChatTemplate | None:
    source = _text_or_none(reader, "tokenizer.chat_template")
    if source is None:
        return None
    try:
        return ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
    except ChatTemplateError as error:
        raise ModelFileError(f"{path}: tokenizer.chat_template is no valid template: {error}") from error


def _text_or_none(reader: GGUFReader, name: str) -> str | None:
    field = reader.get_field(name)
    return None if field is None else str(field.contents())


def _served(spec: ModelSpec, file: _ModelFile, path: Path) -> ServedModel:
    if file.context_length is not None and spec.max_model_len > file.context_length:
        raise ModelFileError(
            f"model {spec.name!r}: max_model_len is {spec.max_model_len}, but {path} was trained for "
            f"{file.context_length} tokens"
        )
    return ServedModel(spec.name, file.tokenizer, file.template, spec.max_model_len)
