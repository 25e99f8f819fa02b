"""Model directories in Hugging Face layout with tiny vocabularies, trained here on a few lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

Spec = dict[str, Any]

LINES = [
    "The loom weaves requests of hot and cold models onto the same devices.",
    "hello world, hello loom; naïve café, don't stop at 1234567890!",
    "def weave(thread):\n    return thread * 2  # twice\n\n",
    "日本語のテキスト 中文文本 한국어",
    "system user assistant INST end im start </s> <s> <unk> <|im_end|> <0x0A>",
] * 4
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
INST = """{{ bos_token }}{% for message in messages %}
{% if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}
{% else %}{{ ' ' + message.content + eos_token }}{% endif %}
{% endfor %}"""


@cache
def _byte_level_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|end|>", rstrip=True, lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return str(tokenizer.to_str())


def byte_level() -> Spec:
    """As GPT-2, Qwen and OPT; with added tokens of both kinds after the base vocabulary."""
    found: Spec = json.loads(_byte_level_json())
    return found


def byte_level_with_bos() -> Spec:
    """As Llama 3: BOS comes from the post-processor, and whole pieces are tokens."""
    spec = byte_level()
    spec["model"]["ignore_merges"] = True
    template = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    holder = Tokenizer(models.BPE())
    holder.post_processor = processors.Sequence([processors.ByteLevel(), template])
    spec["post_processor"] = json.loads(holder.to_str())["post_processor"]
    return spec


@cache
def _metaspace_json() -> str:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", *BYTE_TOKENS]
    # whole lines are one piece, so that tokens may reach over words and, were they allowed to, be control tokens
    alphabet = list("abcdefghijklmnopqrstuvwxyzTIN<>/[]|_0A ▁.,'é")
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet, max_token_length=8)
    tokenizer.train_from_iterator([line for line in LINES if "日" not in line], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return str(tokenizer.to_str())


def metaspace() -> Spec:
    """As Mistral: "▁" for a space, one before the first word, bytes for unknown characters."""
    spec: Spec = json.loads(_metaspace_json())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] not in BYTE_TOKENS]
    return spec


def legacy() -> Spec:
    """As Llama 2: the "▁" is put before every stretch of text by the normalizer."""
    spec = metaspace()
    spec["pre_tokenizer"] = None
    holder = Tokenizer(models.BPE())
    holder.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    spec["normalizer"] = json.loads(holder.to_str())["normalizer"]
    return spec


def unigram() -> Spec:
    """As llm-jp: a Unigram model, in which control tokens have the best score of all. Training one is left to chance,
    so the scores are made up, no two of them equal."""
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    words = sorted({word.replace(" ", "▁") for line in LINES for word in re.findall(r" ?\w{2,5}", line)})
    characters = sorted({"▁", *"".join(LINES)} - {" "})
    vocab = [(token, 0.0) for token in special] + [(token, -20.0) for token in BYTE_TOKENS]
    vocab += [(token, -5 - 0.011 * number) for number, token in enumerate(words)]
    vocab += [(token, -8 - 0.013 * number) for number, token in enumerate(characters)]
    tokenizer = Tokenizer(models.Unigram(vocab, 0, True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    spec: Spec = json.loads(tokenizer.to_str())
    return spec


def size_of(spec: Spec) -> int:
    """One more than the highest id."""
    vocab: dict[str, int] | list[Any] = spec["model"]["vocab"]
    base = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    highest: int = max(*base, *(token["id"] for token in spec["added_tokens"]))
    return highest + 1


STYLES: dict[str, tuple[Callable[[], Spec], Spec]] = {
    "byte-level": (byte_level, {"eos_token": "<|im_end|>", "chat_template": CHATML}),
    "byte-level-bos": (byte_level_with_bos, {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}),
    "metaspace": (metaspace, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": INST}),
    "legacy": (legacy, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": INST}),
    "unigram": (unigram, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": INST}),
}


def write_directory(path: Path, style: str = "byte-level", /, **changed: Any) -> Path:
    """A model directory without weights; ``changed`` are keys of ``tokenizer``, ``tokenizer_config``, ``config`` and
    ``generation_config`` to replace, or None to leave the file out; ``template`` is the text of chat_template.jinja."""
    make, tokenizer_config = STYLES[style]
    spec = make()
    files: dict[str, Spec | None] = {
        "tokenizer": spec,
        "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer_config},
        "config": {"model_type": "llama", "max_position_embeddings": 64, "vocab_size": size_of(spec)},
        "generation_config": None,
    }
    path.mkdir(parents=True)
    if "template" in changed:
        (path / "chat_template.jinja").write_text(changed.pop("template"))
    for name, change in changed.items():
        files[name] = None if change is None else (files.get(name) or {}) | change
    for name, values in files.items():
        if values is not None:
            (path / f"{name}.json").write_text(json.dumps(values))
    return path
