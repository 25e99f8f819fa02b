"""The encoders of a ``tokenizer.json``: its normalizer, its cut and its model, without any control token.

A control token that stayed in the model's vocabulary could come out of plain text: byte-pair merges may make it, and a
Unigram model takes any token that it finds. A model with byte pairs can do without the token; in a Unigram list each
place is an id, so there the token gets a name with a space in it, and no space ever comes to the model.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from gateway.models.tokenizer.library import refusing
from shared.vocabulary.hf_vocabulary import HfVocabulary
from shared.vocabulary.model_fields import ModelFields

# Encoded once at start-up, because some flaws of a file only show with text that the vocabulary does not know.
_PROBES = ["", " ", "a b\n", "\x00\U0010ffff é"]


def build_encoders(tokenizer: ModelFields, vocabulary: HfVocabulary) -> tuple[Tokenizer, Tokenizer]:
    """Encoders for text at the beginning of a prompt and after a control token; mostly one and the same."""
    spec: dict[str, Any] = {
        **tokenizer.values,
        "model": _plain_model(tokenizer, vocabulary),
        "added_tokens": [token.spec for token in vocabulary.user_defined],
        "post_processor": None,  # adds BOS, which is not the encoder's business
        "truncation": None,  # a left-over of training; it would cut prompts short
        "padding": None,
    }
    opening = _build(tokenizer, spec)
    inner_cut = _never_first(spec.get("pre_tokenizer"))
    inner = (
        opening if inner_cut == spec.get("pre_tokenizer") else _build(tokenizer, {**spec, "pre_tokenizer": inner_cut})
    )
    with refusing(f"{tokenizer.path} cannot be used"):
        is_cut = not (vocabulary.is_unigram and _passes_spaces(opening))
    if not is_cut:
        raise tokenizer.error("its spaces reach the Unigram model; supported are vocabularies with '▁' for a space")
    return opening, inner


def _build(tokenizer: ModelFields, spec: dict[str, Any]) -> Tokenizer:
    with refusing(f"{tokenizer.path} cannot be used"):
        encoder = Tokenizer.from_str(json.dumps(spec))
        encoder.encode_batch_fast(_PROBES, add_special_tokens=False)
    return encoder


def _plain_model(tokenizer: ModelFields, vocabulary: HfVocabulary) -> dict[str, Any]:
    section = ModelFields(tokenizer.need("model", dict), tokenizer.path)
    model: dict[str, Any] = {**section.values, "dropout": None}  # dropout would make encoding a matter of chance
    control = vocabulary.control
    if vocabulary.is_unigram:
        if model.get("unk_id") is None:
            raise tokenizer.error("model.unk_id is missing, so text with unknown characters could not be encoded")
        return model | {"vocab": _plain_list(model["vocab"], vocabulary)}
    vocab = {text: token_id for text, token_id in model["vocab"].items() if text not in control}
    # the library gives an added token the id that the model has for it, and a number of its own otherwise
    vocab |= {token.text: token.id for token in vocabulary.user_defined}
    unknown = section.get("unk_token", str)
    if unknown is not None and unknown in control:  # stands for unknown characters, but not for its own name
        model["unk_token"] = _hidden(unknown)
        vocab[_hidden(unknown)] = control[unknown].id
    if section.get("type", str) == "WordPiece":
        if unknown is None or model["unk_token"] not in vocab:
            raise tokenizer.error("model.unk_token is no token, so text with unknown words could not be encoded")
        return model | {"vocab": vocab}
    prefix = section.get("continuing_subword_prefix", str) or ""
    merges = []
    for merge in model["merges"]:  # two tokens, with a space between them or as a list
        pair = merge.split(" ", 1) if isinstance(merge, str) else merge
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
            raise tokenizer.error(f"model.merges: {merge!r} is no pair of tokens")
        if (
            not pair[1].startswith(prefix) or not prefix.isascii()
        ):  # the library cuts it off unseen, or ends the process
            raise tokenizer.error(f"model.merges: {merge!r} does not go on with continuing_subword_prefix {prefix!r}")
        if control.keys().isdisjoint((*pair, pair[0] + pair[1])):
            merges.append(pair)
    return model | {"vocab": vocab, "merges": merges}


def _plain_list(pairs: list[tuple[str, float]], vocabulary: HfVocabulary) -> list[tuple[str, float]]:
    lowest = min(score for _, score in pairs)  # what an unknown character costs depends on it
    plain = [(_hidden(text) if text in vocabulary.control else text, score) for text, score in pairs]
    plain += [(_hidden(str(number)), lowest) for number in range(len(plain), vocabulary.size)]
    for token in vocabulary.user_defined:
        plain[token.id] = (token.text, plain[token.id][1])
    return plain


def _hidden(text: str) -> str:
    return f" {text}"


def _passes_spaces(encoder: Tokenizer) -> bool:
    text = "a b" if encoder.normalizer is None else encoder.normalizer.normalize_str("a b")
    pieces = [(text, (0, 3))] if encoder.pre_tokenizer is None else encoder.pre_tokenizer.pre_tokenize_str(text)
    return any(" " in piece for piece, _ in pieces)


def _never_first(component: Any) -> Any:
    """The cut of text that is not at the beginning: where "▁" comes before the first word only, it does not come."""
    if isinstance(component, list):
        return [_never_first(part) for part in component]
    if not isinstance(component, dict):
        return component
    changed = {key: _never_first(value) for key, value in component.items()}
    return changed | {"prepend_scheme": "never"} if changed.get("prepend_scheme") == "first" else changed
