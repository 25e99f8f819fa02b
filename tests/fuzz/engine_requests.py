"""Payloads and images at an engine with real kernels: what it takes it brings to an end, what it does not it says.

Numbers of a request reach kernels in C++, which trust them: whatever gets there has to be within the model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.grammars.compiler import GrammarCompiler
from gpu_node.models.config import Family
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.codec import UndecodableError, decode_payload, encode
from shared.messages.requests.payload import Constraint, Output, Payload, Sampling
from shared.vocabulary.gguf_vocabulary import TokenType
from tests.fuzz.model_weights import gguf_model
from tests.fuzz.scratch import scratch
from tests.fuzz.target import Target, refused, rule
from tests.fuzz.trees import msgpack_mutator
from tests.gateway.tiny import write_model

MAX_STEPS = 200
"""A request of the tiny model takes a dozen, prompts that are computed again included."""
PLAIN = Payload("a", 0, "g", "tiny", [1, 2, 3], Sampling(max_tokens=4, seed=7, stop_token_ids=[2]))
KINDS = [
    PLAIN,
    replace(PLAIN, sampling=Sampling(max_tokens=3, temperature=0.0, num_logprobs=2, ignore_eos=True)),
    replace(PLAIN, sampling=Sampling(max_tokens=4, top_k=2, top_p=0.9, min_p=0.1, num_choices=2, num_candidates=2)),
    replace(PLAIN, sampling=Sampling(max_tokens=4, is_beam=True, num_choices=2, num_candidates=3)),
    replace(
        PLAIN,
        sampling=Sampling(
            max_tokens=4,
            presence_penalty=0.5,
            frequency_penalty=0.5,
            repetition_penalty=1.5,
            logit_bias=[(1, 2.0), (3, -100.0)],
        ),
    ),
    replace(PLAIN, attempt=1, outputs=[Output([1])]),
    replace(PLAIN, sampling=Sampling(max_tokens=4, constraint=Constraint("regex", "A{2}B?"))),
    replace(PLAIN, sampling=Sampling(max_tokens=4, constraint=Constraint("grammar", 'start: "A" start | "B"'))),
    replace(PLAIN, sampling=Sampling(max_tokens=4, num_choices=2, constraint=Constraint("choice", '["AB", "D"]'))),
]
TOKENS = ["A", "B", "<end>", "D"]
END = 2


@cache
def _engine() -> Engine:
    logging.getLogger("gpu_node.engine.evictions.eviction").setLevel(
        logging.ERROR
    )  # each image that is not used is a warning
    path = scratch() / "engine.gguf"
    path.write_bytes(gguf_model(Family.LLAMA))
    options = EngineOptions(kv_cache_bytes=1 << 20, block_size=2, step_tokens=16, max_num_seqs=4)
    kinds = [TokenType.CONTROL if token_id == END else TokenType.NORMAL for token_id in range(len(TOKENS))]
    words = write_model(scratch() / "words.gguf", tokens=TOKENS, kinds=kinds, eos=END, bos=None, merges=["A B"])
    engine = Engine(CpuExecutor(options, num_threads=1), options, grammars=GrammarCompiler(lambda _: words))
    engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=8))
    return engine


def _run(payload: Payload, image: bytes | None = None) -> bool:
    """One request alone; whether it was taken."""
    engine = _engine()
    engine.reset()
    chunks = engine.add(payload, image)
    is_taken = engine.has_work
    for _ in range(MAX_STEPS):
        if not engine.has_work:
            break
        chunks += engine.step(0.0)
    rule(not engine.has_work, "a request comes to its end")
    rule(len([chunk for chunk in chunks if chunk.is_last]) == 1, "it ends once")
    tokens = [token for chunk in chunks for token in chunk.token_ids]
    rule(all(0 <= token < 4 for token in tokens), "tokens are the model's")
    engine.check()
    return is_taken


def _check_payload(data: bytes) -> bool:
    found: list[Payload] = []
    if refused(lambda: found.append(decode_payload(data)), UndecodableError):
        return False
    return _run(found[0])


def _check_image(data: bytes) -> bool:
    """An image that cannot be used ends the attempt: it ends in either case. True where it was used."""
    return _run(KINDS[data[0] % len(KINDS)] if data else PLAIN, data[1:])


def mutated_image(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """The kind of request stands in front and stays."""
    return data[:1] + msgpack_mutator(data[1:], [one[1:] for one in corpus], rng)


def _images() -> Sequence[bytes]:
    """Of requests that gave way behind their first steps."""
    images = []
    engine = _engine()
    for number, payload in enumerate(KINDS):
        engine.reset()
        engine.add(payload)
        engine.step(0.0)
        engine.step(0.0)
        engine.evict([payload.request_id])
        images += [bytes([number]) + one.data for one in engine.hand_over([payload.request_id])]
    return images


TARGETS = [
    Target("payloads at an engine", lambda: [encode(one) for one in KINDS], _check_payload, msgpack_mutator, share=5),
    Target("images at an engine", _images, _check_image, mutated_image, share=3),
]
