"""A model in a directory of Hugging Face layout: its tokenizer, chat template and context length.

Only data is read: JSON, and a Jinja template that runs in a sandbox. Python files, pickles and SentencePiece protobufs
that may lie beside them are never opened.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.models.chat_template import ChatTemplate, ChatTemplateError
from gateway.models.model_parts import ModelParts
from gateway.models.own_sampling import HF_NAMES
from gateway.models.pictures.picture_form import picture_form
from gateway.models.tokenizer.hf_encoding import build_encoders
from gateway.models.tokenizer.tokenizer import PromptTokenizer, TokenizerParts
from shared.config.engines.scoring import DOCUMENT, QUERY
from shared.files.classifier import num_labels_of
from shared.files.encoder import has_gpt2_keys, is_encoder_type, max_length, text_positions
from shared.files.model_file import ModelFileError
from shared.files.vision import text_values
from shared.vocabulary.hf_vocabulary import HfFiles, HfVocabulary, read_vocabulary, special_text
from shared.vocabulary.model_fields import ModelFields
from shared.vocabulary.text_edges import TextEdges, text_edges
from shared.vocabulary.token_texts import read_files, token_bytes

_TEMPLATE_FILE = "chat_template.jinja"
_TOOL_TEMPLATE_FILE = "additional_chat_templates/tool_use.jinja"


def read_directory(directory: Path) -> ModelParts:
    """Read the parts; `ModelFileError` names the file that is missing or cannot be used, and what to do."""
    files = read_files(directory)
    whole = files.config
    files = replace(files, config=ModelFields(text_values(whole.values), whole.path))
    vocabulary = read_vocabulary(files)
    config = files.tokenizer_config
    edges = text_edges(files, vocabulary)
    family = files.config.get("model_type", str) or ""
    is_encoder = is_encoder_type(family)
    source, tool_source = _template_sources(directory, config)
    return ModelParts(
        tokenizer=PromptTokenizer(tokenizer_parts(files, vocabulary, edges)),
        template=_template(source, config, vocabulary),
        tool_template=_template(tool_source, config, vocabulary),
        context_length=_context_length(files.config),
        family=family,
        is_classifier=num_labels_of(files.config.values) is not None,
        is_encoder=is_encoder,
        score_prompt=pair_prompt(edges, vocabulary) if is_encoder else None,
        sampling_file=files.generation,
        sampling_names=HF_NAMES,
        pictures=picture_form(directory, whole, vocabulary),
    )


def pair_prompt(edges: TextEdges, vocabulary: HfVocabulary) -> str | None:
    """A query and a document as the two texts of a pair; None where the files say nothing of pairs."""
    between = "".join(vocabulary.names[token_id] for token_id in edges.between_ids)
    return f"{QUERY}{between}{DOCUMENT}" if between else None


def tokenizer_parts(files: HfFiles, vocabulary: HfVocabulary, edges: TextEdges) -> TokenizerParts:
    """What these files say of text and tokens."""
    texts = token_bytes(files, vocabulary)
    opening, inner = build_encoders(files.tokenizer, vocabulary)
    return TokenizerParts(
        control=vocabulary.control,
        token_bytes=texts,
        opening=opening,
        inner=inner,
        prefix_ids=tuple(edges.prefix_ids),
        suffix_ids=tuple(edges.suffix_ids),
        eos_ids=vocabulary.eos_ids,
        bos_token="" if vocabulary.bos_id is None else vocabulary.names[vocabulary.bos_id],
        eos_token=vocabulary.names[vocabulary.eos_ids[0]],
    )


_Source = tuple[Path, str | None]


def _template_sources(directory: Path, config: ModelFields) -> tuple[_Source, _Source]:
    """The template and the one for functions, of their own files, else of ``tokenizer_config.json``, by their names."""
    path = directory / _TEMPLATE_FILE
    if path.is_file():
        tool_path = directory / _TOOL_TEMPLATE_FILE
        return (path, _read(path)), (tool_path, _read(tool_path) if tool_path.is_file() else None)
    if isinstance(config.values.get("chat_template"), list):
        named = {entry.need("name", str): entry.need("template", str) for entry in config.sections("chat_template")}
        return (config.path, named.get("default")), (config.path, named.get("tool_use"))
    return (config.path, config.get("chat_template", str)), (config.path, None)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error


def _template(source: _Source, config: ModelFields, vocabulary: HfVocabulary) -> ChatTemplate | None:
    path, text = source
    if text is None:
        return None
    special = {key: special_text(config, key) for key in config.values if key.endswith("_token") and key[:4] != "add_"}
    tokens = {key: text for key, text in special.items() if text is not None}
    tokens.setdefault("bos_token", "" if vocabulary.bos_id is None else vocabulary.names[vocabulary.bos_id])
    tokens.setdefault("eos_token", vocabulary.names[vocabulary.eos_ids[0]])
    try:
        return ChatTemplate(text, **tokens)
    except ChatTemplateError as error:
        raise ModelFileError(f"{path}: the chat template is no valid template: {error}") from error


def _context_length(config: ModelFields) -> int | None:
    """``max_position_embeddings`` as it stands (``n_positions`` in GPT-2), with or without scaled embeddings.

    Llama 3, YaRN and LongRoPE write the scaled length there. For linear scaling some files write the length before it,
    but a node takes the number as it stands too, and here must not be room that no node has.
    """
    length = config.get("n_positions" if has_gpt2_keys(config.values) else "max_position_embeddings", int)
    if length is None and "text_config" in config.values:
        return None  # `transformers` leaves out what is its default
    if length is None:
        length = config.need("n_positions", int)
    is_encoder = is_encoder_type(config.values.get("model_type"))
    return max_length(text_positions(config.values, length)) if is_encoder else length
