"""A model in a GGUF file: its tokenizer, chat template and context length."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, models

from gateway.chat_template import ChatTemplate, ChatTemplateError
from gateway.model_parts import ModelParts
from gateway.tokenizer import ControlToken, PromptTokenizer, TokenizerParts
from gateway.vocabulary import Kind, Vocabulary, read_vocabulary
from shared.model_file import ModelFileError, open_gguf


def read_gguf(path: Path) -> ModelParts:
    """Read the parts; `ModelFileError` names the file, the field and the value that cannot be used."""
    reader = open_gguf(path)
    tokenizer = PromptTokenizer(_tokenizer_parts(read_vocabulary(reader, path)))
    architecture = _text_or_none(reader, "general.architecture")
    length = reader.get_field(f"{architecture}.context_length")
    return ModelParts(
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


def _tokenizer_parts(vocabulary: Vocabulary) -> TokenizerParts:
    tokens, bos_id = vocabulary.tokens, vocabulary.bos_id
    control = vocabulary.of_kind(Kind.CONTROL)
    encoder = _encoder(vocabulary, control)
    return TokenizerParts(
        control={text: ControlToken(token_id) for text, token_id in control.items()},
        token_bytes=[vocabulary.bytes_of(token_id) for token_id in range(len(tokens))],
        opening=encoder,
        inner=encoder,
        prefix_ids=(bos_id,) if vocabulary.add_bos and bos_id is not None else (),
        eos_ids=vocabulary.eos_ids,
        bos_token="" if bos_id is None else tokens[bos_id],
        eos_token=tokens[vocabulary.eos_ids[0]],
    )


def _encoder(vocabulary: Vocabulary, control: dict[str, int]) -> Tokenizer:
    """The byte-pair encoder, without control tokens: no text whatsoever can become one."""
    recipe = vocabulary.recipe
    encoder = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocabulary.tokens) if token not in control},
            merges=vocabulary.merges,
            ignore_merges=recipe.ignore_merges,
        )
    )
    encoder.pre_tokenizer = recipe.pre_tokenizer()
    if recipe.normalizer is not None:
        encoder.normalizer = recipe.normalizer()
    encoder.add_tokens([AddedToken(text, normalized=False) for text in vocabulary.of_kind(Kind.USER_DEFINED)])
    return encoder
