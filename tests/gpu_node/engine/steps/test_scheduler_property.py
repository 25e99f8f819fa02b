"""Random arrivals of all kinds of requests, cancels, resumes, preemptions, evictions, one step in flight or two.

Everything ends, in order, with the tokens that it would have had alone; nothing leaks. The device's memory holds token
ids (`integer_device`), so blocks that are shared wrongly would show as wrong tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpu_node.engine.border.plan import Restore, StepPlan
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import RequestState
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.preemption import AlwaysRecompute, KvFate, PreemptionPolicy, SwapIfRoom
from gpu_node.engine.steps.batch.roster import MAX_STEPS_IN_FLIGHT
from gpu_node.engine.steps.scheduler import Scheduler
from shared.messages.requests.payload import Payload
from tests.gpu_node import alone
from tests.gpu_node.bookkeeping import OldestFirst, payload, scheduler, teach_short_outputs
from tests.gpu_node.client import Client
from tests.gpu_node.integer_device import IntegerDevice
from tests.gpu_node.integer_grammar import CONSTRAINT, IntegerGrammar

BLOCK_SIZE = 2
MAX_MODEL_LEN = 16
MAX_STEPS = 2000
LAST_ARRIVAL = 9
MORE_TO_KEEP = 8
"""Times as much host memory as for swaps, so that it has what the device has given up."""


Content = list[list[int | None]]

KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"num_choices": 2},
    {"num_choices": 3},
    {"num_candidates": 3, "num_choices": 2},
    {"num_candidates": 2},
    {"is_beam": True, "num_candidates": 2, "num_choices": 2},
    {"is_beam": True, "num_candidates": 3, "length_penalty": 0.0},
    {"is_beam": True, "num_candidates": 2, "length_penalty": -1.0},
    {"constraint": CONSTRAINT},
    {"constraint": CONSTRAINT, "temperature": 0.0},
    {"constraint": CONSTRAINT, "num_choices": 2},
    {"constraint": CONSTRAINT, "num_candidates": 3},
]
SINGLE_KINDS: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"constraint": CONSTRAINT}]
ENDS: list[dict[str, Any]] = [{}, {"ignore_eos": True}, {"ignore_eos": True}, {"stop_token_ids": [3, 4]}]


@st.composite
def client(draw: st.DrawFn, number: int, kinds: Sequence[dict[str, Any]] = KINDS) -> Client:
    prompt = draw(st.lists(st.integers(0, 2), min_size=1, max_size=8))
    sampling = draw(st.sampled_from(kinds)) | draw(st.sampled_from(ENDS)) | {"seed": draw(st.integers(0, 3))}
    return Client(
        arrives_at=draw(st.integers(0, 2)),
        payload=payload(str(number), prompt, draw(st.sampled_from([1, 4, 8, 9, 10])), **sampling),
        cancelled_at=draw(st.sampled_from([*[None] * 12, 2, 4, 6, 8])),
        resumed_at=draw(st.sampled_from([None, None, None, 2, 4, 6, 9])),
        evicted_at=draw(st.sampled_from([None, None, None, 1, 2, 3, 4, 6, 8])),
        back_at=draw(st.integers(3, LAST_ARRIVAL)),
    )


NUM_REMOTE_PAGES, REMOTE_PAGE_BLOCKS = 4, 3


class SwapOldest(SwapIfRoom):
    """Whoever asks for room may have to give way itself."""

    def victim(self, running: Collection[EngineRequest], now: float) -> EngineRequest:
        return min(running, key=lambda request: request.order)


class SwapEveryOther(SwapIfRoom):
    """What was swapped once may be recomputed the next time, and the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self._is_swap = False

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        self._is_swap = not self._is_swap
        return super().fate(request, blocks) if self._is_swap else KvFate.RECOMPUTE


class Run:
    """A scheduler before a device of integers, with up to ``max_in_flight`` steps between them."""

    def __init__(self, one: Scheduler, clients: list[Client], max_in_flight: int) -> None:
        self.one = one
        self._clients = {client.request_id: client for client in clients}
        self._device = IntegerDevice(one.blocks.num_blocks, BLOCK_SIZE)
        self._max_in_flight = max_in_flight
        self.num_swaps = 0
        self.num_restored = 0
        self.num_late = 0
        self._in_flight: deque[tuple[StepPlan, list[tuple[Restore, Content]]]] = deque()
        self._images: dict[str, tuple[RequestState, Content]] = {}
        self._withheld = set(range(NUM_REMOTE_PAGES))
        self.num_sent = self.num_called_back = 0

    def lease(self, num_pages: int, ratio: float) -> None:
        """The receiver grants pages, or wants some back."""
        if num_pages < 0:
            self.one.residences.withdraw(-num_pages)
        else:
            pages = sorted(self._withheld)[:num_pages]
            self._withheld.difference_update(pages)
            self.one.residences.grant(pages, REMOTE_PAGE_BLOCKS)
            self.one.residences.ratio = ratio
        self.one.check()

    def arrivals(self, step: int) -> None:
        """Who comes, leaves, or goes on after the loss of a node."""
        for client in self._clients.values():
            times = (client.arrives_at, client.evicted_at, client.back_at, client.resumed_at, client.cancelled_at)
            if step in times:  # else nothing can have changed since the last check
                self._happen(client, step)
                self.one.check()

    def _happen(self, client: Client, step: int) -> None:
        request_id = client.request_id
        if client.back_at == step and request_id in self._images and self.one.attempt_of(request_id) is None:
            self._add(client.payload, self._images[request_id][0])
        elif client.evicted_at == step and self.one.attempt_of(request_id) is not None:
            self._evict(client)
        elif client.arrives_at == step:
            self._add(client.payload)
        elif client.resumed_at == step and self._forget(request_id):
            self._add(client.next_attempt())
        if client.cancelled_at == step and self._forget(request_id):
            client.is_over = True

    def _add(self, asked: Payload, state: RequestState | None = None) -> None:
        grammar = None if asked.sampling.constraint is None else IntegerGrammar()
        self._take(self.one.add(asked, state, grammar))

    def _forget(self, request_id: str) -> bool:
        is_kept = self._images.pop(request_id, None) is not None
        return self.one.abort(request_id) or is_kept

    def _evict(self, client: Client) -> None:
        """Take a request out when no step is in flight; one that has computed nothing goes on as another attempt."""
        while self._in_flight:
            self._commit()
        request_id = client.request_id
        if self.one.attempt_of(request_id) is None or request_id in self._images:
            return
        held = self.one.held_state(request_id)
        self.one.abort(request_id)
        if held is None or client.back_at is None or client.evicted_at is None or client.back_at <= client.evicted_at:
            self._add(client.next_attempt())
        else:
            content = self._device.read(held.device_blocks, swapped_out=False)
            content += self._device.read(held.host_blocks, swapped_out=True)
            self._images[request_id] = held.state, content

    def step(self, now: float, step_tokens: int) -> None:
        self.one.residences.serve(self._device.generation)
        while self._in_flight and self.one.is_worth_waiting:
            self._commit()
        plan = self.one.schedule(now)
        self.one.check()
        self.num_sent += len(plan.sends)
        self.num_called_back += len(plan.calls_back)
        if not plan.is_empty:
            assert plan.num_tokens <= step_tokens
            guessed = [part.draws[0].sampling for part in plan.sequences if part.num_draft_tokens]
            assert not any(sampling.is_beam for sampling in guessed)
            assert not any(part.is_remote for part in plan.sequences if part.num_draft_tokens)
            self.num_swaps += len(plan.swaps_out)
            restored = [(restore, self._images.pop(restore.request_id)[1]) for restore in plan.restores]
            self.num_restored += len(restored)
            self._in_flight.append((plan, restored))
        elif not self._in_flight:
            assert not self.one.has_work, "with requests, something can always be planned or waited for"
        if self._in_flight and (plan.is_empty or len(self._in_flight) == self._max_in_flight):
            self._commit()
        self._take_pages()

    def _commit(self) -> None:
        """The device runs the oldest step as late as it may."""
        plan, restored = self._in_flight.popleft()
        for restore, content in restored:
            self._device.write(restore, content)
        is_late = any(draw.is_mask_late for part in plan.sequences for draw in part.draws)
        self.num_late += is_late
        masks = self.one.late_masks(plan) if is_late else {}
        self._take(self.one.commit(plan, self._device.run(plan, masks)))
        self.one.check()
        self._take_pages()

    def lose_receiver(self) -> None:
        """As a receiver that misses its deadline."""
        self._device.lose_receiver()

    def _take_pages(self) -> None:
        """What came back is the receiver's: nobody computes there, and no page is lost."""
        pages = self.one.residences.take_returned()
        self._device.give_back(pages, REMOTE_PAGE_BLOCKS)
        self._withheld.update(pages)
        if not self._in_flight:
            assert self.one.blocks.remote.pages.num_granted + len(self._withheld) == NUM_REMOTE_PAGES

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self.one.has_work and not self._images

    def _take(self, chunks: list[OutputChunk]) -> None:
        for chunk in chunks:
            self._clients[chunk.request_id].take(chunk)


@settings(max_examples=300, deadline=None)
@given(
    clients=st.integers(5, 10).flatmap(lambda number: st.tuples(*(client(each) for each in range(number)))),
    num_blocks=st.integers(18, 22),
    step_tokens=st.integers(5, 20),
    max_num_seqs=st.integers(5, 12),
    max_in_flight=st.integers(1, MAX_STEPS_IN_FLIGHT),
    policy=st.sampled_from([AlwaysRecompute, OldestFirst, SwapIfRoom, SwapOldest, SwapEveryOther, None]),
    num_host_blocks=st.integers(0, 16),
    order=st.sampled_from(["fcfs", "fair", "slack"]),
    admission=st.sampled_from(["peak", "greedy", "priced"]),
    preemption=st.sampled_from(["recompute", "swap_only", "adaptive"]),
    chunked_prefill=st.booleans(),
    lazy_swaps=st.booleans(),
    keeps=st.booleans(),
    has_late_masks=st.booleans(),
    max_draft_tokens=st.sampled_from([0, 1, 3, 6]),
    max_structured_tokens=st.sampled_from([0, 1, 5, 16]),
)
def test_everything_ends_as_if_alone_and_nothing_leaks(
    clients: tuple[Client, ...],
    num_blocks: int,
    step_tokens: int,
    max_num_seqs: int,
    max_in_flight: int,
    policy: Callable[[], PreemptionPolicy] | None,
    num_host_blocks: int,
    order: str,
    admission: str,
    preemption: str,
    chunked_prefill: bool,
    lazy_swaps: bool,
    keeps: bool,
    has_late_masks: bool,
    max_draft_tokens: int,
    max_structured_tokens: int,
) -> None:
    one = scheduler(
        num_blocks,
        BLOCK_SIZE,
        MAX_MODEL_LEN,
        step_tokens,
        max_num_seqs,
        policy() if policy else None,
        num_host_blocks * (MORE_TO_KEEP if keeps else 1),
        keeps=keeps,
        has_late_masks=has_late_masks,
        max_draft_tokens=max_draft_tokens,
        max_structured_tokens=max_structured_tokens,
        host_kv_bytes=1,
        order=order,
        admission=admission,
        preemption=preemption,
        chunked_prefill=chunked_prefill,
        lazy_swaps=lazy_swaps,
    )
    teach_short_outputs(one)
    run = Run(one, list(clients), max_in_flight)
    for step in range(MAX_STEPS):
        run.arrivals(step)
        run.step(float(step), step_tokens)
        if run.is_idle and step >= LAST_ARRIVAL:
            break
    event(f"restored {min(run.num_restored, 3)}")
    event("masks came late" if run.num_late else "masks came with plans")
    event("swapped" if run.num_swaps else "recomputed" if one.num_preemptions else "never preempted")
    counts = one.counts
    event("some guesses held" if counts.num_accepted_tokens else "guessed" if counts.num_draft_tokens else "no guesses")
    event("structured guesses held" if counts.num_structured_accepted else "none held")
    event("found in host memory" if one.counts.kept.host_tokens else "found on the device")
    check_ends(one, clients)


def check_ends(one: Scheduler, clients: Sequence[Client]) -> None:
    """Nothing is left, and everybody has what it would have had alone."""
    assert one.blocks.num_free_blocks == one.blocks.num_blocks
    assert one.blocks.remote.num_used == 0
    for client in clients:
        assert client.is_over, "every request ends"
        expected = alone.answer(client.payload, MAX_MODEL_LEN)
        for choice, output in client.outputs.items():
            tokens, reason = expected[choice]
            if output.finish_reason:
                assert (output.token_ids, output.finish_reason) == (tokens, reason)
            else:
                assert client.cancelled_at is not None
                assert output.token_ids == tokens[: len(output.token_ids)]
        assert client.cancelled_at is not None or client.outputs.keys() == expected.keys()


@settings(max_examples=100, deadline=None)
@given(
    clients=st.integers(4, 9).flatmap(
        lambda number: st.tuples(*(client(each, SINGLE_KINDS) for each in range(number)))
    ),
    num_blocks=st.integers(9, 22),
    step_tokens=st.integers(5, 20),
    max_in_flight=st.integers(1, MAX_STEPS_IN_FLIGHT),
    policy=st.sampled_from([AlwaysRecompute, OldestFirst, SwapIfRoom, SwapOldest]),
    num_host_blocks=st.integers(0, 16),
    chunked_prefill=st.booleans(),
    lazy_swaps=st.booleans(),
    num_granted=st.integers(1, NUM_REMOTE_PAGES),
    has_late_masks=st.booleans(),
    max_draft_tokens=st.sampled_from([0, 4]),
    max_structured_tokens=st.sampled_from([0, 5]),
    leases=st.dictionaries(st.integers(2, 20), st.integers(-3, 3), max_size=8),
    losses=st.sets(st.integers(2, 20), max_size=2),
    ratio=st.sampled_from([0.5, 0.8, 1.0]),
)
def test_who_goes_to_a_receiver_ends_as_if_alone(
    clients: tuple[Client, ...],
    num_blocks: int,
    step_tokens: int,
    max_in_flight: int,
    policy: Callable[[], PreemptionPolicy],
    num_host_blocks: int,
    chunked_prefill: bool,
    lazy_swaps: bool,
    num_granted: int,
    has_late_masks: bool,
    max_draft_tokens: int,
    max_structured_tokens: int,
    leases: dict[int, int],
    losses: set[int],
    ratio: float,
) -> None:
    one = scheduler(
        num_blocks,
        BLOCK_SIZE,
        MAX_MODEL_LEN,
        step_tokens,
        12,
        policy(),
        num_host_blocks,
        host_kv_bytes=1,
        chunked_prefill=chunked_prefill,
        lazy_swaps=lazy_swaps,
        has_late_masks=has_late_masks,
        max_draft_tokens=max_draft_tokens,
        max_structured_tokens=max_structured_tokens,
    )
    teach_short_outputs(one)
    run = Run(one, list(clients), max_in_flight)
    run.lease(num_granted, ratio)
    weave(run, step_tokens, leases, losses, ratio)
    num_lost = one.residences.num_lost
    event("lost" if num_lost else "called back" if run.num_called_back else "sent" if run.num_sent else "never sent")
    check_ends(one, clients)


def weave(run: Run, step_tokens: int, leases: Mapping[int, int], losses: Collection[int], ratio: float) -> None:
    """Until all have ended, while pages are granted and withdrawn."""
    for step in range(MAX_STEPS):
        run.lease(leases.get(step, 0), ratio)
        if step in losses:
            run.lose_receiver()
        run.arrivals(step)
        run.step(float(step), step_tokens)
        if run.is_idle and step >= LAST_ARRIVAL:
            break


def test_pages_that_leave_with_an_empty_plan_wait_for_no_further_step() -> None:
    """A request lies in pages that are wanted back, and there is no room at home: it is to be computed anew.

    With a step in flight the plan is empty then, and nobody was told of the page until a further one had run.
    """
    one = scheduler(11, BLOCK_SIZE, MAX_MODEL_LEN, 6, 12, AlwaysRecompute(), 2, host_kv_bytes=1, chunked_prefill=False)
    teach_short_outputs(one)
    asked = [(0, 1, 1, False), (1, 2, 10, True), (0, 3, 1, False), (0, 8, 8, False)]  # found by the test above
    asked += [(1, 1, 8, False), (1, 2, 10, True), (0, 6, 9, False)]
    clients = [
        Client(arrives_at, payload(str(number), [0] * num_prompt, max_tokens, ignore_eos=ignore_eos))
        for number, (arrives_at, num_prompt, max_tokens, ignore_eos) in enumerate(asked)
    ]
    run = Run(one, clients, 2)
    run.lease(1, 0.5)
    weave(run, 6, {2: 3, 15: -2}, (), 0.5)
    assert run.num_called_back
    check_ends(one, clients)
