"""Random cases of every kernel against the reference in float64; for draws, against the reference sampler."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from line import Line

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.sampler import sample
from gpu_node.kernels import reference
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.kernels.token_draw import NOT_DRAWN, TokenDraw
from gpu_node.kernels.triton import activations, norms
from gpu_node.kernels.triton.attention import attention
from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.decode_attention import decode_attention
from gpu_node.kernels.triton.attention.gather import gather
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing, RemoteRows
from gpu_node.kernels.triton.attention.send import send
from gpu_node.kernels.triton.attention.task_ring import PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.blocks import copy_blocks
from gpu_node.kernels.triton.cache import CacheShape, DeviceBatch, LayerCache, Places, device_batch
from gpu_node.kernels.triton.draws.adjust import adjusted_logits
from gpu_node.kernels.triton.draws.draw import draw_tokens
from gpu_node.kernels.triton.draws.draw_arrays import draw_arrays
from gpu_node.kernels.triton.experts import experts
from gpu_node.kernels.triton.lora import lora
from gpu_node.kernels.triton.rope import rope, write_kv
from gpu_node.kernels.triton.route import route
from shared.messages.requests.payload import Sampling

EPSILON = 1e-5
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
NUM_CASES = 3
"""One where kernels are interpreted."""
LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a case: those of a model on a device, tiny ones where kernels are interpreted."""

    device: torch.device
    dtype: torch.dtype
    columns: int
    head_dim: int
    num_kv_heads: int
    num_shared: int
    longest: int
    vocab_size: int

    @classmethod
    def of(cls, device: torch.device, dtype: torch.dtype) -> Sizes:
        """Llama 3's, where there is a device."""
        if device.type == "cuda":
            return cls(device, dtype, 4096, 128, 8, 4, 700, 32_000)
        return cls(device, dtype, 40, 6, 2, 3, 12, 300)

    def numbers(self, *shape: int) -> torch.Tensor:
        """Random, of the case's type."""
        return torch.randn(shape, device=self.device).to(self.dtype)

    def poisoned(self, like: torch.Tensor) -> torch.Tensor:
        """An output that nobody has written."""
        return torch.full_like(like, torch.nan)


Case = Callable[[Sizes, random.Random], float]


def check_kernels(device: torch.device, _: Mapping[str, float], share: int, num_shares: int) -> Iterator[Line]:
    """Each kernel, in each type, on some random cases. NaN where a number was not written."""
    for number, (dtype, (name, case)) in enumerate(product(TOLERANCES, _CASES.items())):
        if number % num_shares == share:
            what, sizes = f"{name}, {str(dtype).removeprefix('torch.')}", Sizes.of(device, dtype)
            yield _worst(what, "relative", TOLERANCES[dtype], case, sizes)
    if share == 0:
        yield _worst("draw", "other", 0.0, _draws, Sizes.of(device, torch.float32))


def _worst(what: str, unit: str, tolerance: float, case: Case, sizes: Sizes) -> Line:
    errors = []
    for seed in range(NUM_CASES if sizes.device.type == "cuda" else 1):
        torch.manual_seed(seed)
        errors.append(case(sizes, random.Random(seed)))
    worst = max(errors) if all(error == error for error in errors) else float("nan")
    return Line(what, worst, unit, at_most=tolerance, is_required=True)


def _error(ours: torch.Tensor, expected: torch.Tensor) -> float:
    return float((ours.double().cpu() - expected).norm() / (expected.norm() + 1e-30))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double().cpu()


def _norms(sizes: Sizes, numbers: random.Random) -> float:
    x, residual = sizes.numbers(2, numbers.randint(1, 33), sizes.columns)
    weight, bias = sizes.numbers(2, sizes.columns)
    out, total = sizes.poisoned(x), x + residual
    norms.add_rms_norm(residual.clone(), x, weight, EPSILON, out)
    error = _error(out, reference.rms_norm(_wide(total), _wide(weight), EPSILON))
    out = sizes.poisoned(x)
    norms.add_layer_norm(residual.clone(), x, weight, bias, EPSILON, out)
    return max(error, _error(out, reference.layer_norm(_wide(total), _wide(weight), _wide(bias), EPSILON)))


def _activations(sizes: Sizes, numbers: random.Random) -> float:
    gate, up = sizes.numbers(2, numbers.randint(1, 33), 3 * sizes.columns)
    silu, gated, gelu = (sizes.poisoned(gate) for _ in range(3))
    activations.silu_mul(gate, up, silu)
    activations.erf_gelu_mul(gate, up, gated)
    activations.gelu(gate, gelu)
    wide = _wide(gate)
    error = max(_error(silu, reference.silu_mul(wide, _wide(up))), _error(gelu, reference.gelu(wide)))
    return max(error, _error(gated, reference.erf_gelu(wide) * _wide(up)))


def _rope(sizes: Sizes, numbers: random.Random) -> float:
    num_rows = numbers.randint(1, 33)
    x = sizes.numbers(num_rows, sizes.num_shared * sizes.head_dim)
    positions = torch.randint(0, 4096, (num_rows,))
    angles = reference.rope_angles(positions, sizes.head_dim, 1e4)
    out = sizes.poisoned(x)
    rope(x, angles.to(sizes.device), out)
    return _error(out, reference.rope(_wide(x), _wide(angles)))


class _Paged:
    """Random sequences in an arena that holds nothing but their keys and values."""

    def __init__(self, sizes: Sizes, numbers: random.Random, *, decodes: bool) -> None:
        self.sizes = sizes
        block_size, self.sequences, num_blocks = 16, [], 0
        for _ in range(4):
            start = numbers.randrange(sizes.longest)
            num_rows = 1 if decodes else numbers.randint(2, sizes.longest)
            size = -(-(start + num_rows) // block_size)
            self.sequences.append(PagedSequence(start, num_rows, list(range(num_blocks, num_blocks + size))[::-1]))
            num_blocks += size
        shape = CacheShape(2, block_size, sizes.num_kv_heads, sizes.head_dim)
        lines = shape.block_lines(sizes.dtype.itemsize)
        self.places = Places(num_blocks * lines, lines)
        memory = torch.full((num_blocks * lines * LINE_BYTES // sizes.dtype.itemsize,), torch.nan, device=sizes.device)
        self.cache = LayerCache(memory.to(sizes.dtype), shape, 1)
        whole = [PagedSequence(0, one.start + one.num_rows, one.block_table) for one in self.sequences]
        num_tokens = sum(one.num_rows for one in whole)
        k, v = sizes.numbers(2, num_tokens, sizes.num_kv_heads * sizes.head_dim)
        write_kv(k, v, self.cache, self.batch(whole))
        heads = (block_size, sizes.num_kv_heads, sizes.head_dim)
        self.expected = torch.full((num_blocks, 2, *heads), torch.nan, dtype=torch.float64)
        reference.write_kv(_wide(k), _wide(v), self.expected, paged_batch(whole, block_size))
        num_rows = sum(one.num_rows for one in self.sequences)
        self.q = sizes.numbers(num_rows, sizes.num_shared * k.shape[1])
        self.out = sizes.poisoned(self.q)

    def batch(self, sequences: list[PagedSequence]) -> DeviceBatch:
        together = rows_together(self.sizes.num_shared)
        return device_batch(sequences, 16, self.places, self.sizes.device, rows_together=together)

    def error(self, window: int | None = None) -> float:
        batch = paged_batch(self.sequences, 16)
        return _error(self.out, reference.paged_attention(_wide(self.q), self.expected, batch, window))


def _prefill(sizes: Sizes, numbers: random.Random) -> float:
    paged = _Paged(sizes, numbers, decodes=False)
    attention.paged_attention(paged.q, paged.cache, paged.batch(paged.sequences), paged.out)
    return paged.error()


def _window(sizes: Sizes, numbers: random.Random) -> float:
    paged, window = _Paged(sizes, numbers, decodes=False), numbers.randint(1, sizes.longest)
    attention.window_attention(paged.q, paged.cache, paged.batch(paged.sequences), window, paged.out)
    return paged.error(window)


def _both_sides(sizes: Sizes, numbers: random.Random) -> float:
    paged = _Paged(sizes, numbers, decodes=False)
    window, batch = numbers.randint(1, sizes.longest), paged_batch(paged.sequences, 16)
    attention.bidirectional_window_attention(paged.q, paged.cache, paged.batch(paged.sequences), window, paged.out)
    return _error(paged.out, reference.bidirectional_attention(_wide(paged.q), paged.expected, batch, window))


def _decode(sizes: Sizes, numbers: random.Random) -> float:
    paged = _Paged(sizes, numbers, decodes=True)
    decode_attention(paged.q, paged.cache, paged.batch(paged.sequences), UNBOUNDED, paged.out, numbers.randint(1, 5))
    return paged.error()


def _poll(sizes: Sizes, numbers: random.Random) -> float:
    """The same decodes, asked for as a task, each with a key and a value that are not in the cache yet."""
    paged = _Paged(sizes, numbers, decodes=True)
    batch = paged.batch(paged.sequences)
    k, v = sizes.numbers(2, len(paged.sequences), sizes.num_kv_heads * sizes.head_dim)
    reference.write_kv(_wide(k), _wide(v), paged.expected, paged_batch(paged.sequences, 16))
    ring = TaskRing(
        shape=paged.cache.shape,
        kinds=torch.zeros(1, dtype=torch.int32, device=sizes.device),
        num_sequences=torch.tensor([len(paged.sequences)], dtype=torch.int32, device=sizes.device),
        firsts=torch.tensor([paged.cache.first], device=sizes.device),
        windows=torch.tensor([UNBOUNDED], dtype=torch.int32, device=sizes.device),
        positions=batch.positions[None],
        block_lines=_tables(paged)[None],
        q=paged.q[None],
        k=k[None],
        v=v[None],
        out=paged.out[None],
        content=paged.q.new_empty(1, paged.cache.shape.block_numbers(paged.q.element_size())),
    )
    counters = PollCounters.new(3, 1, sizes.device)
    counters.asked.add_(1)
    poll(Tasks(counters, ring), paged.cache.numbers)
    return paged.error() if int(counters.served) == 1 else float("nan")


def _remote(sizes: Sizes, numbers: random.Random) -> float:
    """The same, asked for by another stream of the device. First the answer is there already; then it is waited for."""
    paged = _Paged(sizes, numbers, decodes=True)
    batch = paged.batch(paged.sequences)
    k, v = sizes.numbers(2, len(paged.sequences), sizes.num_kv_heads * sizes.head_dim)
    reference.write_kv(_wide(k), _wide(v), paged.expected, paged_batch(paged.sequences, 16))
    most = max(len(one.block_table) for one in paged.sequences)
    ring = TaskRing.new(paged.cache.shape, 2, len(paged.sequences), most, paged.q.shape[1], paged.q)
    counters = PollCounters.new(3, 2, sizes.device)
    asks = RemoteRing.new(counters, ring, paged.places)
    rows = RemoteRows(batch.positions, batch.first_blocks, batch.block_lines)
    send(asks, paged.q, k, v, paged.cache, rows)
    poll(Tasks(counters, ring), paged.cache.numbers)
    gather(asks, paged.out, None, paged.cache.numbers)
    error = paged.error()
    if sizes.device.type == "cuda":  # an interpreter's launches come one behind the other
        paged.out.fill_(torch.nan)
        send(asks, paged.q, k, v, paged.cache, rows)
        receiver = torch.cuda.Stream(sizes.device)  # type: ignore[no-untyped-call]
        receiver.wait_stream(torch.cuda.current_stream())
        gather(asks, paged.out, None, paged.cache.numbers)
        with torch.cuda.stream(receiver):
            poll(Tasks(counters, ring), paged.cache.numbers)
        torch.cuda.current_stream().wait_stream(receiver)
        error = max(error, paged.error())
    return float("nan") if asks.is_lost else error


def _tables(paged: _Paged) -> torch.Tensor:
    """int32 [sequences, most blocks of one]: where blocks begin."""
    lines = [torch.tensor([paged.places.line(block) for block in one.block_table]) for one in paged.sequences]
    return torch.nn.utils.rnn.pad_sequence(lines, batch_first=True).to(paged.sizes.device, torch.int32)


def _experts(sizes: Sizes, numbers: random.Random) -> float:
    num_rows, num_experts, num_chosen = numbers.randint(1, 40), 8, 2
    x, inner = sizes.numbers(num_rows, sizes.columns // 4), sizes.columns // 2
    routing = torch.full((num_rows, num_experts), torch.nan, device=sizes.device)
    logits = torch.randn(num_rows, num_experts, device=sizes.device)
    route(logits, num_chosen, routing)
    gate, up = sizes.numbers(2, num_experts, inner, x.shape[1]) / x.shape[1] ** 0.5
    down = sizes.numbers(num_experts, x.shape[1], inner) / inner**0.5
    out = sizes.poisoned(x)
    experts(x, routing, gate, up, down, num_chosen, out)
    expected_routing = reference.route(_wide(logits), num_chosen)
    expected = reference.experts(_wide(x), expected_routing, _wide(gate), _wide(up), _wide(down))
    return max(_error(routing, expected_routing), _error(out, expected))


def _lora(sizes: Sizes, numbers: random.Random) -> float:
    num_rows, num_adapters, rank = numbers.randint(1, 70), 3, numbers.choice([4, 16, 33])
    x, out = sizes.numbers(num_rows, sizes.columns), sizes.numbers(num_rows, sizes.columns // 2)
    a = sizes.numbers(num_adapters, rank, x.shape[1]) / x.shape[1] ** 0.5
    b = sizes.numbers(num_adapters, out.shape[1], rank) / rank**0.5
    adapters = torch.tensor([numbers.randrange(-1, num_adapters) for _ in range(num_rows)], device=sizes.device)
    expected = reference.lora(_wide(x), _wide(out), _wide(a), _wide(b), adapters.cpu())
    lora(x, a, b, adapters.to(torch.int32), None, out)
    return _error(out, expected)


def _copies(sizes: Sizes, numbers: random.Random) -> float:
    num_blocks, lines = 20, 33
    arena = torch.randint(0, 1 << 62, (num_blocks * lines * 8,), device=sizes.device)
    expected = arena.clone().view(num_blocks, -1)
    sources, destinations = numbers.sample(range(num_blocks), 6), numbers.sample(range(num_blocks), 6)
    expected[destinations] = expected[sources]
    from_lines, to_lines = (
        torch.tensor([block * lines for block in blocks], dtype=torch.int32, device=sizes.device)
        for blocks in (sources, destinations)
    )
    copy_blocks(arena, from_lines, to_lines, lines)
    return 0.0 if arena.equal(expected.flatten()) else 1.0


def _draws(sizes: Sizes, numbers: random.Random) -> float:
    """The part of tokens that are not those of the reference sampler."""
    torch.manual_seed(numbers.randrange(1 << 30))
    logits = torch.randn(16 if sizes.device.type == "cuda" else 6, sizes.vocab_size) * 3
    draws, expected = [], []
    for row in range(len(logits)):
        sampling = Sampling(
            max_tokens=1,
            temperature=numbers.choice([0.0, 0.7, 1.0, 1.3]),
            top_k=numbers.choice([0, 1, 20, 300]),
            top_p=numbers.choice([0.5, 0.95, 1.0]),
            min_p=numbers.choice([0.0, 0.05]),
            presence_penalty=numbers.choice([0.0, 1.0]),
            logit_bias=numbers.choice([[], [(3, 1.5)]]),
            seed=numbers.randrange(1 << 60),
        )
        output = [numbers.randrange(sizes.vocab_size) for _ in range(5)]
        allowed = _mask(sizes, numbers) if row % 2 else b""
        token_draw = Draw(row, sampling, len(output), allowed=allowed)
        drawn = sample(logits[row], token_draw, output)
        expected.append(NOT_DRAWN if drawn is None else drawn.token_id)
        known = output if sampling.has_penalties else ()
        draws.append(TokenDraw(row, sampling, len(output), 0, None, (), known, allowed))
    there, arrays = logits.to(sizes.device), draw_arrays(draws, sizes.vocab_size, sizes.device)
    tokens, cells = torch.full((2, len(draws)), -7, dtype=torch.int32, device=sizes.device)
    draw_tokens(there, adjusted_logits(there, arrays.adjustments, cells), arrays, tokens, cells)
    wrong = [one != other for one, other in zip(tokens.tolist(), expected, strict=True)]
    share: float = sum(wrong) / len(draws)
    return share


def _mask(sizes: Sizes, numbers: random.Random) -> bytes:
    """Of one token, of some, or of most of the first part of a vocabulary."""
    num_bytes = numbers.randint(1, sizes.vocab_size // 8)
    one, some = 1 << numbers.randrange(8 * num_bytes), numbers.getrandbits(8 * num_bytes) | 1
    return numbers.choice([one, some, some | numbers.getrandbits(8 * num_bytes)]).to_bytes(num_bytes, "little")


_CASES: dict[str, Case] = {
    "add and norm": _norms,
    "activations": _activations,
    "rope": _rope,
    "prefill attention": _prefill,
    "attention in a window": _window,
    "attention to both sides": _both_sides,
    "decode attention": _decode,
    "poll": _poll,
    "send, poll, gather": _remote,
    "experts": _experts,
    "adapters": _lora,
    "copies of blocks": _copies,
}
