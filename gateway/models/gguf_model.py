"""A model in a GGUF file: its tokenizer, chat template and context length."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models

from gateway.models.chat_template import ChatTemplate, ChatTemplateError
from gateway.models.library import refusing
from gateway.models.model_fields import ModelFields
from gateway.models.model_parts import ModelParts
from gateway.models.tokenizer import ControlToken, PromptTokenizer, TokenizerParts
from gateway.models.vocabulary import TokenType, Vocabulary, read_vocabulary
from shared.files.gguf_file import open_gguf


def read_gguf(path: Path) -> ModelParts:
    """Read the parts; `ModelFileError` names the file, the field and the value that cannot be used."""
    file = open_gguf(path)
    fields = ModelFields(file.metadata, path)  # metadata are of the types that JSON has
    tokenizer = PromptTokenizer(_tokenizer_parts(read_vocabulary(file, path), path))
    return ModelParts(
        tokenizer=tokenizer,
        template=_template(fields, tokenizer),
        context_length=fields.get(f"{fields.get('general.architecture', str)}.context_length", int),
    )


def _template(fields: ModelFields, tokenizer: PromptTokenizer) -> ChatTemplate | None:
    source = fields.get("tokenizer.chat_template", str)
    if source is None:
        return None
    try:
        return ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
    except ChatTemplateError as error:
        raise fields.error(f"tokenizer.chat_template is no valid template: {error}") from error


def _tokenizer_parts(vocabulary: Vocabulary, path: Path) -> TokenizerParts:
    tokens, bos_id = vocabulary.tokens, vocabulary.bos_id
    control = vocabulary.of_kind(TokenType.CONTROL)
    encoder = _encoder(vocabulary, control, path)
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


def _encoder(vocabulary: Vocabulary, control: dict[str, int], path: Path) -> Tokenizer:
    """The byte-pair encoder, without control tokens: no text whatsoever can become one."""
    recipe = vocabulary.recipe
    vocab = {token: index for index, token in enumerate(vocabulary.tokens) if token not in control}
    with refusing(f"{path}: tokenizer.ggml.merges cannot be used"):
        model = models.BPE(vocab=vocab, merges=vocabulary.merges, ignore_merges=recipe.ignore_merges)
    encoder = Tokenizer(model)
    encoder.pre_tokenizer = recipe.pre_tokenizer()
    if recipe.normalizer is not None:
        encoder.normalizer = recipe.normalizer()
    encoder.add_tokens([AddedToken(text, normalized=False) for text in vocabulary.of_kind(TokenType.USER_DEFINED)])
    return encoder
