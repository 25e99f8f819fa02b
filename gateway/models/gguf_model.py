"""A model in a GGUF file: its tokenizer, chat template and context length."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models

from gateway.models.chat_template import ChatTemplate, ChatTemplateError
from gateway.models.hf_model import pair_prompt, tokenizer_parts
from gateway.models.model_parts import ModelParts
from gateway.models.own_sampling import GGUF_NAMES
from gateway.models.tokenizer.library import refusing
from gateway.models.tokenizer.pretokenizers import RECIPES, Recipe
from gateway.models.tokenizer.tokenizer import PromptTokenizer, TokenizerParts
from shared.files.classifier import CLASSIFIER_TENSOR
from shared.files.encoder import is_encoder_file, max_length
from shared.files.gguf_file import GgufFile, open_gguf
from shared.files.model_file import ModelFileError
from shared.vocabulary.control_token import ControlToken
from shared.vocabulary.gguf_encoder import encoder_files
from shared.vocabulary.gguf_vocabulary import GgufVocabulary, TokenType, read_gguf_vocabulary
from shared.vocabulary.hf_vocabulary import read_vocabulary
from shared.vocabulary.model_fields import ModelFields
from shared.vocabulary.text_edges import text_edges


def read_gguf(path: Path) -> ModelParts:
    """Read the parts; `ModelFileError` names the file, the field and the value that cannot be used."""
    file = open_gguf(path)
    fields = ModelFields(file.metadata, path)  # metadata are of the types that JSON has
    if is_encoder_file(file.metadata):
        return _encoder_parts(file, fields)
    family, head = fields.get("general.architecture", str), file.tensors.get(CLASSIFIER_TENSOR)
    tokenizer = PromptTokenizer(_tokenizer_parts(read_gguf_vocabulary(file, path), path))
    return ModelParts(
        tokenizer=tokenizer,
        template=_template(fields, "tokenizer.chat_template", tokenizer),
        tool_template=_template(fields, "tokenizer.chat_template.tool_use", tokenizer),
        context_length=fields.get(f"{family}.context_length", int),
        family=family or "",
        is_classifier=head is not None and head.shape[0] == 1,
        sampling_file=fields,
        sampling_names=GGUF_NAMES,
        score_prompt=fields.get("tokenizer.chat_template.rerank", str),
    )


def _encoder_parts(file: GgufFile, fields: ModelFields) -> ModelParts:
    """Those of an encoder, as a directory of its tokenizer has them."""
    files = encoder_files(file, fields.path)
    vocabulary = read_vocabulary(files)
    edges = text_edges(files, vocabulary)
    family = fields.need("general.architecture", str)
    return ModelParts(
        tokenizer=PromptTokenizer(tokenizer_parts(files, vocabulary, edges)),
        template=None,
        context_length=max_length(fields.need(f"{family}.context_length", int)),
        family=family,
        is_classifier=CLASSIFIER_TENSOR in file.tensors,
        is_encoder=True,
        score_prompt=pair_prompt(edges, vocabulary),
    )


def _template(fields: ModelFields, name: str, tokenizer: PromptTokenizer) -> ChatTemplate | None:
    source = fields.get(name, str)
    if source is None:
        return None
    try:
        return ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
    except ChatTemplateError as error:
        raise fields.error(f"{name} is no valid template: {error}") from error


def _tokenizer_parts(vocabulary: GgufVocabulary, path: Path) -> TokenizerParts:
    tokens, bos_id, recipe = vocabulary.tokens, vocabulary.bos_id, _recipe(vocabulary, path)
    control = vocabulary.of_kind(TokenType.CONTROL)
    encoder = _encoder(vocabulary, recipe, control, path)
    has_prefix = recipe.add_bos if vocabulary.add_bos is None else vocabulary.add_bos
    if has_prefix and bos_id is None:
        raise ModelFileError(f"{path}: prompts begin with BOS, but tokenizer.ggml.bos_token_id is missing")
    return TokenizerParts(
        control={text: ControlToken(token_id) for text, token_id in control.items()},
        token_bytes=[vocabulary.bytes_of(token_id) for token_id in range(len(tokens))],
        opening=encoder,
        inner=encoder,
        prefix_ids=(bos_id,) if has_prefix and bos_id is not None else (),
        suffix_ids=vocabulary.eos_ids[:1] if vocabulary.add_eos else (),
        eos_ids=vocabulary.eos_ids,
        bos_token="" if bos_id is None else tokens[bos_id],
        eos_token=tokens[vocabulary.eos_ids[0]],
    )


def _recipe(vocabulary: GgufVocabulary, path: Path) -> Recipe:
    recipe = RECIPES.get(vocabulary.pre)
    if recipe is None:
        supported = ", ".join(sorted(RECIPES))
        raise ModelFileError(f"{path}: tokenizer.ggml.pre is {vocabulary.pre!r}; supported are {supported}")
    return recipe


def _encoder(vocabulary: GgufVocabulary, recipe: Recipe, control: dict[str, int], path: Path) -> Tokenizer:
    """The byte-pair encoder, without control tokens: no text whatsoever can become one."""
    vocab = {token: index for index, token in enumerate(vocabulary.tokens) if token not in control}
    with refusing(f"{path}: tokenizer.ggml.merges cannot be used"):
        model = models.BPE(vocab=vocab, merges=vocabulary.merges, ignore_merges=recipe.ignore_merges)
    encoder = Tokenizer(model)
    encoder.pre_tokenizer = recipe.pre_tokenizer()
    if recipe.normalizer is not None:
        encoder.normalizer = recipe.normalizer()
    encoder.add_tokens([AddedToken(text, normalized=False) for text in vocabulary.of_kind(TokenType.USER_DEFINED)])
    return encoder
