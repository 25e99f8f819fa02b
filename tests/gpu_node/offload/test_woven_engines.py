"""Requests of one engine whose attention runs on another: each gets the tokens that it gets without."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.requests.chunk import OutputChunk
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Output, Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.models.test_families_models import save
from tests.gpu_node.offload.weaving import CPU, CUDA, LINK, MODEL, PIPED, Device, Weaving, on_cuda

MAX_MODEL_LEN = 48
SENDER = EngineOptions(kv_cache_bytes=1 << 20, block_size=4, step_tokens=32, offload="on")
RECEIVER = EngineOptions(kv_cache_bytes=16 << 20, block_size=16, offload="on")


def requests(device: Device = CPU) -> list[Payload]:
    numbers = random.Random(5)
    payloads = []
    for number in range(device.num_requests):
        prompt = [numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, 22))]
        num_tokens = numbers.randint(5, device.most_tokens)
        sampling = Sampling(max_tokens=num_tokens, temperature=number % 3 * 0.5, seed=number, ignore_eos=True)
        payloads.append(Payload(str(number), 0, "g", MODEL, prompt, sampling))
    return payloads


def spec(path: Path) -> ModelSpec:
    return ModelSpec(name=MODEL, source=str(path), max_model_len=MAX_MODEL_LEN)


def large_model(folder: Path, device: Device) -> Path:
    """A model whose keys and values are so large that 170 tokens fill the sender's memory, 128 on a CUDA device."""
    path = folder / device.name
    save("llama", path, num_hidden_layers=device.num_layers, num_key_value_heads=4, head_dim=device.head_dim)
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[Device, Path]:
    folder = tmp_path_factory.mktemp("large")
    models = {name: large_model(folder, device) for name, device in (("cpu", CPU), ("cuda", CUDA))}
    return {device: models["cuda" if device is CUDA else "cpu"] for device in (CPU, CUDA, *PIPED)}


@pytest.mark.parametrize(
    ("device", "ratio", "form"),
    [
        *((CPU, ratio, form) for ratio in (0.0, 0.3, 1.0) for form in ("on", "ahead")),
        *((device, ratio, "on") for device in PIPED for ratio in (0.0, 0.3, 1.0)),
        (PIPED[1], 0.5, "ahead"),
        on_cuda(0.0, "on"),
        on_cuda(0.4, "on"),
        on_cuda(1.0, "on"),
        on_cuda(0.4, "ahead"),
    ],
    ids=str,
)
def test_tokens_are_those_of_home(
    stack: ExitStack,
    tmp_path: Path,
    paths: dict[Device, Path],
    device: Device,
    ratio: float,
    form: Literal["on", "ahead"],
) -> None:
    sender = replace(SENDER, offload=form)
    both = Weaving(stack, tmp_path, spec(paths[device]), sender=sender, receiver=RECEIVER, device=device)
    alone = tiny.run(both.hot, requests(device))
    assert both.lend(3, ratio)
    assert tiny.run(both.hot, requests(device)) == alone
    assert (both.num_served > 0) == (ratio > 0)
    assert (both.hot.counts.num_piped > 0) == (device in PIPED)
    both.hot.check()


@pytest.mark.parametrize("form", ["on", "ahead"])
def test_adapters_read_remote_rows_as_local_ones(
    stack: ExitStack, tmp_path: Path, form: Literal["on", "ahead"]
) -> None:
    model = save(
        "llama", tmp_path / "model", num_hidden_layers=CPU.num_layers, num_key_value_heads=4, head_dim=CPU.head_dim
    )
    save_adapter(model, tmp_path / "legal", ALL)
    adapted = replace(spec(tmp_path / "model"), adapters=(AdapterSpec("legal", str(tmp_path / "legal")),))
    both = Weaving(stack, tmp_path, adapted, sender=replace(SENDER, offload=form), receiver=RECEIVER)
    payloads = [replace(one, adapter=("", "legal")[number % 2]) for number, one in enumerate(requests())]
    alone = tiny.run(both.hot, payloads)
    assert alone != tiny.run(both.hot, requests()), "an adapter changes tokens"
    assert both.lend(3, 0.4)
    assert tiny.run(both.hot, payloads) == alone
    assert both.num_served > 0


@pytest.mark.parametrize("device", [CPU, on_cuda()], ids=str)
def test_an_adapter_comes_while_requests_lie_at_a_receiver(stack: ExitStack, tmp_path: Path, device: Device) -> None:
    """They are computed again, as where it is lost: what is sent is made anew for the model as it is now."""
    model = save(
        "llama",
        tmp_path / "model",
        num_hidden_layers=device.num_layers,
        num_key_value_heads=4,
        head_dim=device.head_dim,
    )
    save_adapter(model, tmp_path / "legal", ALL)
    plain = spec(tmp_path / "model")
    both = Weaving(stack, tmp_path, plain, sender=SENDER, receiver=RECEIVER, device=device)
    alone = tiny.run(both.hot, requests(device))
    both.lend(3, 1.0)

    def happen(step: int) -> None:
        if step == 6:
            both.hot.load_model(replace(plain, adapters=(AdapterSpec("legal", str(tmp_path / "legal")),)))

    assert both.run(requests(device), happen) == alone
    assert both.num_served > 0


@pytest.mark.parametrize("device", [CPU, *PIPED, on_cuda()], ids=str)
def test_two_engines_can_be_each_others_receiver(
    stack: ExitStack, tmp_path: Path, paths: dict[Device, Path], device: Device
) -> None:
    """Who waits for the other serves it meanwhile."""
    sender = replace(RECEIVER, block_size=4, step_tokens=32)
    both = Weaving(stack, tmp_path, spec(paths[device]), sender=sender, receiver=RECEIVER, device=device)
    back = LinkName("cold-1", "hot-1")
    both.hot.offload.receive(back, both.cold.make_link(back, MODEL))
    asked = requests(device)[: device.num_requests // 2]
    alone = tiny.run(both.hot, asked)
    both.lend(2, 1.0)
    both.cold.offload.grant(back, both.hot.offload.lend(back, 2), both.hot.offload.page_bytes)
    both.cold.offload.set_ratio(back, 0.5)
    outputs: list[dict[str, list[int]]] = [{payload.request_id: [] for payload in asked} for _ in range(2)]
    engines = both.hot, both.cold
    for engine in engines:
        assert [engine.add(payload) for payload in asked] == [[]] * len(asked)
    while any(engine.has_work for engine in engines):
        for engine, found in zip(engines, outputs, strict=True):
            for chunk in engine.step(now=0.0) if engine.has_work else ():
                found[chunk.request_id] += chunk.token_ids
    assert [list(found.values()) for found in outputs] == [alone, alone]
    assert min(engine.offload.num_served for engine in engines) > 0


@pytest.mark.parametrize(("device", "family"), [on_cuda(name) for name in ("gpt2", "qwen2-window", "mixtral")], ids=str)
def test_each_family_gives_the_tokens_of_home(stack: ExitStack, tmp_path: Path, device: Device, family: str) -> None:
    """Of other families than Llama, with positions in their embeddings, windows or experts; on CPU devices see
    `test_offloaded_program`."""
    save(family, tmp_path)
    both = Weaving(stack, tmp_path, spec(tmp_path), sender=SENDER, receiver=RECEIVER, device=device)
    asked = requests(device)[2:]
    alone = tiny.run(both.hot, asked)
    assert both.lend(1, 0.6)
    assert tiny.run(both.hot, asked) == alone
    assert both.num_served > 0


@pytest.mark.parametrize(
    ("device", "seed"), [*((CPU, seed) for seed in range(4)), *((one, 4) for one in PIPED), on_cuda(0)], ids=str
)
def test_pages_that_are_wanted_back_call_requests_home_at_any_step(
    stack: ExitStack, tmp_path: Path, paths: dict[Device, Path], device: Device, seed: int
) -> None:
    numbers = random.Random(seed)
    both = Weaving(stack, tmp_path, spec(paths[device]), sender=SENDER, receiver=RECEIVER, device=device)
    alone = tiny.run(both.hot, requests(device))
    granted = both.lend(3, 0.7)
    num_wanted = 0

    def happen(step: int) -> None:
        nonlocal num_wanted
        if step % 7 == 5:
            number = numbers.randint(1, 3)
            num_wanted += number
            both.want_back(number)
        elif step % 7 == 6:
            granted.extend(both.lend(numbers.randint(1, 3), 0.7))

    for _ in range(3):
        assert both.run(requests(device), happen) == alone
    both.want_back(len(granted))
    both.take_news()
    assert sorted(both.returned) == sorted(granted), "every page comes back"
    assert both.num_served > 0
    assert both.num_lost == 0


@pytest.mark.parametrize("device", [CPU, on_cuda()], ids=str)
def test_requests_that_come_with_images_go_over_and_no_token_of_a_prompt_is_computed_again(
    stack: ExitStack, tmp_path: Path, paths: dict[Device, Path], device: Device
) -> None:
    both = Weaving(stack, tmp_path, spec(paths[device]), sender=SENDER, receiver=RECEIVER, device=device)
    alone = tiny.run(both.hot, requests(device))
    outputs: dict[str, list[int]] = {payload.request_id: [] for payload in requests(device)}
    images: dict[str, bytes] = {}
    num_kv_tokens = 0
    for payload in requests(device):
        assert both.hot.add(payload) == []
        chunks: list[OutputChunk] = []
        while not chunks:
            chunks = both.hot.step(now=0.0)
        last, kept = both.hot.evict([payload.request_id])
        outputs[payload.request_id] += [token for chunk in (*chunks, *last) for token in chunk.token_ids]
        num_kv_tokens += sum(one.kv_tokens for one in kept)
        images |= {one.request_id: one.data for one in both.hot.hand_over([payload.request_id])}
    assert both.lend(3, 0.5)
    before = both.hot.counts
    for payload in requests(device):
        assert both.hot.add(payload, images[payload.request_id]) == []
    while both.hot.has_work:
        for chunk in both.hot.step(now=0.0):
            outputs[chunk.request_id] += chunk.token_ids
    counts = both.hot.counts - before
    assert list(outputs.values()) == alone
    assert (counts.restored_tokens, counts.num_recomputed, counts.first_queried_tokens) == (num_kv_tokens, 0, 0)
    assert both.num_served > 0


@pytest.mark.parametrize(("device", "is_lost"), [(CPU, False), (CPU, True), on_cuda(False), on_cuda(True)], ids=str)
def test_who_is_evicted_from_a_receiver_goes_on_where_it_was_unless_it_was_lost(
    stack: ExitStack, tmp_path: Path, paths: dict[Device, Path], device: Device, is_lost: bool
) -> None:
    both = Weaving(
        stack,
        tmp_path,
        spec(paths[device]),
        sender=replace(SENDER, kv_cache_bytes=2 << 20),
        receiver=RECEIVER,
        device=device,
    )
    name = str(device.num_requests - 5)
    (payload,) = (one for one in requests(device) if one.request_id == name)
    (alone,) = tiny.run(both.hot, [payload])
    both.lend(3, 1.0)
    assert both.hot.add(payload) == []
    tokens: list[int] = []
    for _ in range(8):
        tokens += [token for chunk in both.hot.step(now=0.0) for token in chunk.token_ids]
    assert both.num_served > 0
    if is_lost:
        both.cold.offload.close(LINK)
    chunks, kept = both.hot.evict([name])
    tokens += [token for chunk in chunks for token in chunk.token_ids]
    assert bool(sum(one.kv_tokens for one in kept)) != is_lost
    both.hot.check()
    assert both.hot.add(replace(payload, outputs=[Output(tokens)])) == []
    while both.hot.has_work:
        tokens += [token for chunk in both.hot.step(now=0.0) for token in chunk.token_ids]
    assert tokens == alone
    assert bool(both.hot.counts.restored_tokens) != is_lost


@pytest.mark.parametrize(
    ("device", "seed"),
    [*((CPU, seed) for seed in range(3)), *((one, 1) for one in PIPED), on_cuda(0), on_cuda(1)],
    ids=str,
)
def test_what_a_receiver_loses_is_computed_again(
    stack: ExitStack, tmp_path: Path, paths: dict[Device, Path], device: Device, seed: int
) -> None:
    """It leaves at any step: its blocks are gone, and somebody else's content lies there."""
    numbers = random.Random(seed)
    both = Weaving(stack, tmp_path, spec(paths[device]), sender=SENDER, receiver=RECEIVER, device=device)
    alone = tiny.run(both.hot, requests(device))
    both.lend(3, 1.0)
    leaves_at = numbers.randint(2, 8)

    def happen(step: int) -> None:
        if step == leaves_at:
            both.cold.offload.close(LINK)
        elif step == leaves_at + 4:
            both.hot.offload.close(LINK)
            both.connect()
            both.lend(3, 0.5)

    assert both.run(requests(device), happen) == alone
    assert both.num_lost > 0
    num_served = both.num_served
    assert both.run(requests(device), lambda step: None) == alone
    assert both.num_served > num_served, "the next link is used"
