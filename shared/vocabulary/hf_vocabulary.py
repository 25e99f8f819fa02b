"""The vocabulary of a model directory: each token's name and id, which of them are control tokens, which have a role.

``tokenizer.json`` holds the tokens; ``tokenizer_config.json`` names the ones with a role and may describe added tokens
anew, and then is right. Ids of ends also stand in ``config.json`` and ``generation_config.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.files.encoder import is_encoder_type
from shared.vocabulary.control_token import ControlToken
from shared.vocabulary.model_fields import ModelFields

MAX_ID_DIGITS = 9  # of a token's id as a key; Python reads no number of thousands of digits


@dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text before anything else happens to it."""

    text: str
    id: int
    is_special: bool
    spec: dict[str, Any]
    """As it stands in ``tokenizer.json``."""

    @property
    def control(self) -> ControlToken:
        """This token as a control token."""
        return ControlToken(self.id, lstrip=bool(self.spec.get("lstrip")), rstrip=bool(self.spec.get("rstrip")))


@dataclass(frozen=True)
class HfFiles:
    """The files of a directory that speak of tokens."""

    tokenizer: ModelFields
    tokenizer_config: ModelFields
    config: ModelFields
    generation: ModelFields | None


@dataclass(frozen=True)
class HfVocabulary:
    """All tokens of a directory, checked."""

    names: dict[int, str]
    size: int
    """One more than the highest id; there may be ids without a token."""
    control: dict[str, ControlToken]
    user_defined: list[AddedToken]
    """Ordinary text that is always one token, in any text."""
    is_unigram: bool
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Of ``tokenizer_config.json`` first."""


def read_vocabulary(files: HfFiles) -> HfVocabulary:
    """Read the tokens; `ModelFileError` names the file and what is wrong with it."""
    model = files.tokenizer.section("model") or ModelFields({}, files.tokenizer.path)
    base = _base_tokens(model)
    added = _with_rows(files, base, _added_tokens(files))
    for token in added:
        if base.get(token.text, token.id) != token.id:
            raise files.tokenizer.error(f"{token.text!r} has two ids, {base[token.text]} and {token.id}")
    ids = base | {token.text: token.id for token in added}
    bos_id = _bos_id(files, ids)
    eos_ids = _eos_ids(files, ids)
    names = {token_id: text for text, token_id in ids.items()}
    if len(names) < len(ids):
        text = next(text for text, token_id in ids.items() if names[token_id] != text)
        raise files.tokenizer.error(f"{text!r} and {names[ids[text]]!r} have the same id, {ids[text]}")
    for role, token_id in [("bos", bos_id), *(("eos", eos_id) for eos_id in eos_ids)]:
        if token_id is not None and token_id not in names:
            raise files.tokenizer.error(f"it has no token with the id {token_id} of the {role} token")
    roles = {text: ControlToken(ids[text]) for text in _named(files.tokenizer_config, ids)}
    special = [token for token in added if token.is_special or token.id in (bos_id, *eos_ids) or token.text in roles]
    control = roles | {token.text: token.control for token in special}
    return HfVocabulary(
        names=names,
        size=max(names) + 1,
        control=control,
        user_defined=[token for token in added if token.text not in control],
        is_unigram=isinstance(model.values["vocab"], list),
        bos_id=bos_id,
        eos_ids=eos_ids,
    )


def special_text(config: ModelFields, key: str) -> str | None:
    """The text of a token that ``tokenizer_config.json`` names, plainly or with its flags."""
    value = config.values.get(key)
    if isinstance(value, dict):
        return ModelFields(value, config.path).need("content", str)
    return config.get(key, str)


_SCORED = ([str, float], [str, int])


def _base_tokens(model: ModelFields) -> dict[str, int]:
    type_ = model.get("type", str) or ("BPE" if "merges" in model.values else None)  # old files do not say
    if type_ == "BPE":
        model.need("merges", list)
        vocab = model.need("vocab", dict)
        if all(type(token_id) is int and token_id >= 0 for token_id in vocab.values()) and vocab:
            return vocab
    elif type_ == "WordPiece":
        vocab = model.need("vocab", dict)
        if all(type(token_id) is int and token_id >= 0 for token_id in vocab.values()) and vocab:
            return vocab
    elif type_ == "Unigram":
        pairs = model.need("vocab", list)
        if all(isinstance(pair, list) and [type(part) for part in pair] in _SCORED for pair in pairs) and pairs:
            return {pair[0]: index for index, pair in enumerate(pairs)}
    else:
        raise model.error(f"a model of type {type_!r} is not supported; 'BPE', 'Unigram' and 'WordPiece' are")
    raise model.error("model.vocab is no vocabulary")


def _added_tokens(files: HfFiles) -> list[AddedToken]:
    found = {section.need("id", int): section for section in files.tokenizer.sections("added_tokens")}
    described = files.tokenizer_config.section("added_tokens_decoder")
    for key in described.values if described else ():
        section = described.section(key) if described else None
        if section is None or not key.isdecimal() or len(key) > MAX_ID_DIGITS:
            raise files.tokenizer_config.error(f"added_tokens_decoder: {key!r} is no token id with a description")
        found[int(key)] = section
    tokens = []
    for token_id, section in sorted(found.items()):
        text = section.need("content", str)
        if token_id < 0:
            raise section.error(f"{text!r} has the id {token_id}")
        flags = {name: bool(section.get(name, bool)) for name in ("lstrip", "rstrip", "single_word", "normalized")}
        is_special = bool(section.get("special", bool))
        if is_special and flags["single_word"]:
            raise section.error(f"the special token {text!r} is for single words only, which is not supported")
        spec = {"id": token_id, "content": text, "special": False, **flags}
        tokens.append(AddedToken(text, token_id, is_special, spec))
    return tokens


def _with_rows(files: HfFiles, base: dict[str, int], added: list[AddedToken]) -> list[AddedToken]:
    """The added tokens that the model has rows for; a token without would be an index out of range on a node."""
    num_rows = files.config.need("vocab_size", int)
    padding = special_text(files.tokenizer_config, "pad_token")
    # a pad token is often added for training, where it is masked, and the weights are not made larger for it
    added = [token for token in added if token.id < num_rows or token.text != padding]
    for text, token_id in [*base.items(), *((token.text, token.id) for token in added)]:
        if token_id >= num_rows:
            raise files.tokenizer.error(
                f"the id {token_id} of {text!r} is outside of the model's {num_rows} tokens "
                f"(vocab_size in {files.config.path.name}); the files are not of one model"
            )
    return added


def _bos_id(files: HfFiles, ids: dict[str, int]) -> int | None:
    if "bos_token" in files.tokenizer_config.values:  # null: there is none, whatever another file says
        text = special_text(files.tokenizer_config, "bos_token")
        return None if text is None else _id_of(files, ids, "bos_token", text)
    return next(iter(files.config.token_ids("bos_token_id")), None)


def _eos_ids(files: HfFiles, ids: dict[str, int]) -> tuple[int, ...]:
    text = special_text(files.tokenizer_config, "eos_token")
    found = [] if text is None else [_id_of(files, ids, "eos_token", text)]
    for file in (files.generation, files.config):  # chat models name the end of a turn in the first
        found += [] if file is None else file.token_ids("eos_token_id")
    separator = special_text(files.tokenizer_config, "sep_token")
    if not found and separator is not None and is_encoder_type(files.config.values.get("model_type")):
        found = [_id_of(files, ids, "sep_token", separator)]  # which ends a text that has no answer
    if not found:
        raise files.tokenizer_config.error("eos_token is missing, here and elsewhere, so no answer would ever end")
    return tuple(dict.fromkeys(found))


def _id_of(files: HfFiles, ids: dict[str, int], key: str, text: str) -> int:
    if text not in ids:
        raise files.tokenizer_config.error(f"{key} is {text!r}, which {files.tokenizer.path.name} does not have")
    return ids[text]


def _named(config: ModelFields, ids: dict[str, int]) -> list[str]:
    """Tokens that the directory's author calls special by name; a pad token may be any ordinary one, and does not."""
    texts: list[Any] = [special_text(config, "bos_token"), special_text(config, "eos_token")]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = config.values.get(key)
        texts += value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    contents = (text.get("content") if isinstance(text, dict) else text for text in texts)
    return [text for text in contents if isinstance(text, str) and text in ids]
