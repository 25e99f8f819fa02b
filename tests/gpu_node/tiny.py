"""A Llama small enough to be made in a test: as a `transformers` model, and as the GGUF file of the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Output, Payload, Sampling

VOCAB = 96
HEADS, KV_HEADS, HEAD_DIM, LAYERS = 4, 2, 8, 2
HIDDEN, INNER, CONTEXT = 32, 48, 128
EPSILON, THETA = 1e-5, 10_000.0
EOS = 2
BLOCK_TOKEN_BYTES = 2 * LAYERS * KV_HEADS * HEAD_DIM * 4
"""Bytes of KV of one token."""

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_model(seed: int = 0, tied: bool = True) -> LlamaForCausalLM:
    """Random weights, large enough that different contexts give different tokens."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        initializer_range=0.4,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=EOS,
    )
    model: LlamaForCausalLM = LlamaForCausalLM(config)
    model.train(False)
    for name, parameter in model.named_parameters():
        if "norm" in name:  # all ones would hide a norm with the wrong weights
            parameter.data.uniform_(0.5, 1.5)
    return model


def tensors_of(model: LlamaForCausalLM, tied: bool = True) -> dict[str, np.ndarray[Any, Any]]:
    """The weights under their GGUF names, rows of queries and keys in the order that GGUF has them."""
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    tensors = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
    }
    if not tied:
        tensors["output.weight"] = state["lm_head.weight"]
    for layer in range(LAYERS):
        for ours, theirs in _NAMES.items():
            values = state[f"model.layers.{layer}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                values = _pairs_from_halves(values)
            tensors[f"blk.{layer}.{theirs}.weight"] = values
    return tensors


def _pairs_from_halves(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows i and i + half side by side; row by row, so that the test does not repeat the loader's reshaping."""
    half = HEAD_DIM // 2
    order = [
        head * HEAD_DIM + pair + part * half
        for head in range(len(values) // HEAD_DIM)
        for pair in range(half)
        for part in (0, 1)
    ]
    return values[order]


def write_gguf(path: Path, tensors: dict[str, np.ndarray[Any, Any]], **metadata: int | float | str) -> Path:
    """A GGUF file; ``metadata`` replaces or adds keys, with ``__`` for dots."""
    writer = gguf.GGUFWriter(path, "llama")
    numbers: dict[str, int | float | str] = {
        "llama.block_count": LAYERS,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.freq_base": THETA,
        "llama.attention.layer_norm_rms_epsilon": EPSILON,
        "tokenizer.ggml.eos_token_id": EOS,
    }
    numbers |= {key.replace("__", "."): value for key, value in metadata.items()}
    for key, value in numbers.items():
        match value:
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def make_engine(
    path: Path,
    block_size: int = 16,
    step_tokens: int = 256,
    max_num_seqs: int = 16,
    kv_cache_bytes: int = 1 << 20,
    max_model_len: int = CONTEXT,
    **options: Any,
) -> Engine:
    """An engine with the model of ``path`` loaded."""
    chosen = EngineOptions(
        block_size=block_size,
        step_tokens=step_tokens,
        max_num_seqs=max_num_seqs,
        kv_cache_bytes=kv_cache_bytes,
        **options,
    )
    engine = Engine(ReferenceExecutor(chosen), chosen)
    engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=max_model_len))
    return engine


def request(
    name: str, prompt: Sequence[int], max_tokens: int, output: Sequence[int] = (), model: str = "tiny", **sampling: Any
) -> Payload:
    """Greedy to the length unless said otherwise."""
    options = {"temperature": 0.0, "ignore_eos": True} | sampling
    outputs = [Output(list(output))] if output else []
    return Payload(name, 0, "g", model, list(prompt), Sampling(max_tokens=max_tokens, **options), outputs)


def steps(engine: Engine) -> Iterator[list[OutputChunk]]:
    """Step until nothing is left, with the books checked."""
    while engine.has_work:
        yield engine.step(now=0.0)
        engine.check()


def run(engine: Engine, payloads: Sequence[Payload]) -> list[list[int]]:
    """New tokens of each request, all started together."""
    outputs: dict[str, list[int]] = {payload.request_id: [] for payload in payloads}
    for payload in payloads:
        assert engine.add(payload) == []
    for chunks in steps(engine):
        for chunk in chunks:
            assert not chunk.error
            outputs[chunk.request_id] += chunk.token_ids
    return list(outputs.values())


def greedy(model: LlamaForCausalLM, prompt: Sequence[int], num_tokens: int) -> tuple[list[int], torch.Tensor]:
    """Tokens by `transformers`, the whole context computed anew for each, and their logits [tokens, vocabulary]."""
    token_ids = list(prompt)
    logits = []
    with torch.inference_mode():
        for _ in range(num_tokens):
            logits.append(model(torch.tensor([token_ids])).logits[0, -1])
            token_ids.append(int(logits[-1].argmax()))
    return token_ids[len(prompt) :], torch.stack(logits)
