"""One example of every message, with every field set to something other than its default."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import msgspec
from msgspec import inspect

from shared.messages.memory.blocks import BlockNews, Locate, Located, TellBlocks, WarmNode
from shared.messages.memory.leases import (
    EndLease,
    GrantLent,
    LeaseFailed,
    LeaseLink,
    LeaseMade,
    LeftPages,
    LendTo,
    Lent,
    MakeLease,
    PageRoom,
    RenewLease,
    TakeBack,
    WantBack,
)
from shared.messages.memory.link_sizes import LinkSizes
from shared.messages.memory.tiers import Tier, TierNews
from shared.messages.message import Message, Tick
from shared.messages.nodes.nodes import (
    Fence,
    Heartbeat,
    Load,
    NodeDown,
    NodeFacts,
    NodeGone,
    NodeState,
    NodeUp,
    Scale,
    Scaled,
    Serve,
)
from shared.messages.nodes.placement import (
    Arrivals,
    GroupLoad,
    Interruption,
    ModelLoad,
    Operations,
    PlacementProblem,
    Plan,
    PlanRequest,
    PoolState,
    Solved,
)
from shared.messages.nodes.step_cost import DecodeYield, ModelRate, StepCost
from shared.messages.prefixes.prefix_sources import KvDoor, PrefixSource
from shared.messages.prefixes.prefixes import PromptPrefix
from shared.messages.requests.inventories import GatewayInventory, NodeInventory
from shared.messages.requests.payload import Constraint, Output, Payload, Sampling
from shared.messages.requests.pictures import Picture
from shared.messages.requests.requests import (
    HANDED_OVER,
    Abort,
    Attempt,
    Cancel,
    Chunk,
    Enqueued,
    Evict,
    Evicted,
    EvictedRequest,
    Finished,
    FinishedRequest,
    GatewayBeat,
    GatewayGone,
    GroupRef,
    ImageTicket,
    KvOpened,
    Pulled,
    QueueLine,
    QueuePlace,
    QueueStatus,
    ReadAhead,
    Rejected,
    Resubmit,
    Submit,
    TenantLine,
    Tokens,
    VirtualQueue,
)
from shared.messages.requests.slo import Slo
from shared.messages.requests.token_logprob import TokenLogprob

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TICKET = ImageTicket("node-1", "http://10.0.0.7:9400/images/v1/e-1-3", "4bf92f3577b34da6a3ce929d0e0e4736", 10 << 20)

_SLO = Slo(name="interactive", ttft_s=1.5, tpot_s=0.25, deadline_s=20.0)
_LOAD = GroupLoad(
    group="g-1",
    model="smol",
    deadline_s=1700000020.5,
    node="node-0",
    slo="interactive",
    tenant="acme",
    rank=12.5,
    num_waiting=2,
    num_running=1,
    mean_prompt_tokens=300.5,
    mean_output_tokens=32.25,
    std_output_tokens=8.5,
    running_output_tokens=20.5,
    max_tokens=64.5,
    kv_tokens=310.5,
    kv_at="node-1",
    end_by_s=1700000060.5,
    std_prompt_tokens=120.5,
    output_error_tokens=0.75,
    kept_tokens=103.5,
    found_tokens=64.5,
    warm_at="node-2",
    warm_tokens=48.5,
    promised_s=60.5,
    promised_token_s=0.25,
    needs="beam search",
    wants_phase=True,
)
_COST = StepCost(0.01, 0.001, 0.0001, 0.00001, 0.00002)
_RATE = ModelRate("smol", _COST, 22_000, 23_040, 1.5, 0.25, "8c1d44aa", DecodeYield(2.5, 1.75), 512)
_DOOR = KvDoor("http://10.0.0.7:9105", "0123456789abcdef")
_FACTS = NodeFacts(
    device="cpu",
    max_num_seqs=32,
    step_tokens=256,
    kv_bytes_per_s=1e9,
    network_bytes_per_s=2e9,
    max_image_bytes=1 << 28,
    swap_s=0.75,
    rates=[_RATE],
    broken_models=["llama"],
    lacks=["beam search"],
    phases="prefill",
    gone_models=["old"],
    door=_DOOR,
    reads_ahead=True,
    follows_load=True,
)
_NODE = msgspec.structs.replace(NodeState.of(_FACTS, "node-0", "smol", 1700000002.5), hands_over=["smol"])
_ARRIVALS = Arrivals(_LOAD, 1.5, 12.25)
_SIZES = LinkSizes(30, 16, 9, 3, 64, 4, 8, 8, 512)
_LINK = LeaseLink("node-0", "e-1", "node-1", "e-2")
_PLAN = Plan(
    version=7,
    queues={"node-0": ["g-1", "g-2"], "node-1": []},
    loads=[ModelLoad("node-1", "smol-b")],
    num_swaps=1,
    late_s=2.5,
    num_nodes={"spare": 3},
    traceparent=TRACE,
)
HEARTBEAT = Heartbeat(
    node="node-0",
    epoch="e-1",
    facts=NodeFacts(
        device="cpu",
        swap_s=0.75,
        broken_models=["llama"],
        lacks=["beam search"],
        phases="prefill",
        gone_models=["old"],
        max_num_seqs=32,
        step_tokens=256,
        kv_bytes_per_s=1e9,
        network_bytes_per_s=2e9,
        max_image_bytes=1 << 28,
        rates=[_RATE],
        door=_DOOR,
        reads_ahead=True,
        follows_load=True,
    ),
    model="smol",
    num_blocks=1024,
    num_free_blocks=1000,
    num_running=2,
    num_waiting=1,
    block_bytes=368640,
    loading="llama-b",
    traceparent=TRACE,
    room=PageRoom(1 << 20, 7, 2),
)
_SAMPLING = Sampling(
    max_tokens=64,
    temperature=0.5,
    top_k=40,
    top_p=0.75,
    min_p=0.125,
    seed=2**63 + 1,
    is_seeded=True,
    stop_token_ids=[2, 50000],
    ignore_eos=True,
    presence_penalty=0.5,
    frequency_penalty=-0.25,
    repetition_penalty=1.25,
    logit_bias=[(7, -100.0)],
    num_logprobs=2,
    num_choices=2,
    num_candidates=4,
    is_beam=True,
    length_penalty=0.5,
    constraint=Constraint("regex", "[0-9]+", 'lead: "So: "\n'),
    is_embedding=True,
)

MESSAGES: list[Message] = [
    Tick(traceparent=TRACE),
    Submit(
        request_id="r-1",
        gateway="gw-0",
        model="smol",
        slo=_SLO,
        prompt_tokens=300,
        max_tokens=64,
        tenant="acme",
        attempt=1,
        wants_place=True,
        done_tokens=17,
        waited_s=2.5,
        needs="beam search",
        prefix=PromptPrefix(32, [2**63, 7]),
        traceparent=TRACE,
    ),
    Cancel(request_id="r-1", traceparent=TRACE),
    GatewayBeat(gateway="gw-0", inventory=3, traceparent=TRACE),
    GatewayGone(gateway="gw-0", traceparent=TRACE),
    GatewayInventory(
        gateway="gw-0", number=3, requests=[Attempt("r-1", 1)], above="r-0", upto="r-2", traceparent=TRACE
    ),
    Resubmit(requests=[Attempt("r-1", 0), Attempt("r-2", 3)], gave_way=True, has_crashed=True, traceparent=TRACE),
    Rejected(request_id="r-1", attempt=1, wait_s=30.5, retry_after_s=12.5, traceparent=TRACE),
    QueueStatus(
        lines=[QueueLine("smol", "interactive", 7, 2, 3.5, 5.25)],
        places=[QueuePlace("r-1", 4, 2.5, 4.25, 1)],
        tenant_lines=[TenantLine("acme", QueueLine("smol", "interactive", 2, 1, 1.5, 2.25))],
        traceparent=TRACE,
    ),
    Enqueued(
        request_id="r-1",
        attempt=1,
        gateway="gw-0",
        kv_at="node-1",
        image=TICKET,
        prefix_at=PrefixSource("node-1", _DOOR, 640, "0f1e2d3c", 1.5),
        traceparent=TRACE,
    ),
    VirtualQueue(
        node="node-0",
        epoch="e-1",
        groups=[GroupRef("g-1", "smol", 3, 8, 2), GroupRef("g-2", "smol-b", 1, 8, 2)],
        yielding=["g-0"],
        hopeless=["smol-b"],
        awaits="smol-c",
        decoded_elsewhere=["smol"],
        read_ahead=["smol"],
        traceparent=TRACE,
    ),
    Evict(node="node-0", epoch="e-1", requests=[Attempt("r-1", 1)], drops_kv=True, traceparent=TRACE),
    Evicted(
        node="node-0",
        epoch="e-1",
        requests=[EvictedRequest("r-1", 1, 17, 317, HANDED_OVER, TICKET)],
        number=7,
        traceparent=TRACE,
    ),
    KvOpened(node="node-0", epoch="e-1", request=Attempt("r-1", 1), image=TICKET, traceparent=TRACE),
    ReadAhead(node="node-1", epoch="e-2", request=Attempt("r-1", 1), image=TICKET, traceparent=TRACE),
    Pulled(node="node-0", epoch="e-1", group="g-1", requests=[Attempt("r-1", 1)], number=6, traceparent=TRACE),
    Abort(requests=[Attempt("r-1", 1)], traceparent=TRACE),
    Finished(node="node-0", epoch="e-1", requests=[FinishedRequest("r-1", 1, "stop", 17)], traceparent=TRACE),
    Tokens(
        node="node-0",
        chunks=[
            Chunk(
                "r-1",
                1,
                16,
                [5, 70000],
                finish_reason="error",
                error="out of memory",
                choice=2,
                logprobs=[TokenLogprob(-0.5, [(5, -0.5), (9, -1.25)]), TokenLogprob(-2.0, [(7, -0.25)])],
                is_last=True,
                cached_tokens=128,
                embedding=b"\x00\x00\x80?",
            )
        ],
        traceparent=TRACE,
    ),
    HEARTBEAT,
    NodeUp(
        epoch="e-1",
        known=NodeState(
            "node-0",
            "smol",
            1700000002.5,
            device="cpu",
            max_num_seqs=32,
            step_tokens=256,
            kv_bytes_per_s=1e9,
            network_bytes_per_s=2e9,
            max_image_bytes=1 << 28,
            rates=[_RATE],
            swap_s=0.75,
            broken_models=["llama"],
            lacks=["beam search"],
            phases="prefill",
            gone_models=["old"],
            door=_DOOR,
            reads_ahead=True,
            follows_load=True,
            hands_over=["smol"],
        ),
        traceparent=TRACE,
    ),
    NodeDown(node="node-0", epoch="e-1", has_crashed=True, blamed=[Attempt("r-1", 1)], traceparent=TRACE),
    Load(node="node-0", epoch="e-1", model="smol", traceparent=TRACE),
    Serve(node="node-0", epoch="e-1", phases="decode", traceparent=TRACE),
    Fence(node="node-0", epoch="e-1", traceparent=TRACE),
    NodeGone(node="node-0", epoch="e-1", has_crashed=True, blamed=[Attempt("r-1", 1)], traceparent=TRACE),
    NodeInventory(
        node="node-0",
        epoch="e-1",
        running=[Attempt("r-1", 1)],
        parked=[Attempt("r-2", 3)],
        above="r-0",
        upto="r-2",
        number=8,
        traceparent=TRACE,
    ),
    PlanRequest(
        version=7,
        groups=[_LOAD],
        queues={"node-0": ["g-1"]},
        arrivals=[_ARRIVALS],
        came_s=1700000000.25,
        interruptions=[Interruption("node-0", "llama", 1.75, 8.5)],
        newcomers=[_ARRIVALS],
        awaits=[ModelLoad("node-0", "llama")],
        traceparent=TRACE,
    ),
    PlacementProblem(
        version=7,
        now_s=1700000000.5,
        nodes=[_NODE],
        groups=[_LOAD],
        queues={"node-0": ["g-1"]},
        policy="edf",
        operations=Operations(evict=False, balance=False, migrate=False, swap=False),
        arrivals=[_ARRIVALS],
        interruptions=[Interruption("node-0", "llama", 1.75, 8.5)],
        newcomers=[_ARRIVALS],
        awaits=[ModelLoad("node-0", "llama")],
        pools=[PoolState("spare", 1, 4, [0.0, 12.5], 30.5, _NODE)],
        traceparent=TRACE,
    ),
    _PLAN,
    Solved(plan=_PLAN, traceparent=TRACE),
    Scale(pool="spare", num_nodes=2, traceparent=TRACE),
    Scaled(pool="spare", num_nodes=1, error="no room", traceparent=TRACE),
    BlockNews(
        node="node-0",
        epoch="e-1",
        number=3,
        model="smol",
        is_new=True,
        tiers=[TierNews(int(Tier.HOST), [2**63, 7], [9])],
        traceparent=TRACE,
    ),
    TellBlocks(node="node-0", epoch="e-1", traceparent=TRACE),
    Locate(request_id="r-1", attempt=1, model="smol", names=[2**63, 7], traceparent=TRACE),
    Located(request_id="r-1", attempt=1, nodes=[WarmNode("node-0", 3, 2, 1)], traceparent=TRACE),
    MakeLease(node="node-0", epoch="e-1", link=_LINK, model="smol", traceparent=TRACE),
    LendTo(node="node-1", epoch="e-2", link=_LINK, sizes=_SIZES, num_pages=4, traceparent=TRACE),
    GrantLent(node="node-0", epoch="e-1", link=_LINK, pages=[3, 5], page_bytes=1 << 20, ratio=0.25, traceparent=TRACE),
    WantBack(node="node-0", epoch="e-1", link=_LINK, num_pages=2, traceparent=TRACE),
    TakeBack(node="node-1", epoch="e-2", link=_LINK, pages=[3], traceparent=TRACE),
    RenewLease(node="node-1", epoch="e-2", link=_LINK, traceparent=TRACE),
    EndLease(node="node-1", epoch="e-2", link=_LINK, traceparent=TRACE),
    LeaseMade(node="node-0", epoch="e-1", link=_LINK, sizes=_SIZES, traceparent=TRACE),
    LeaseFailed(node="node-1", epoch="e-2", link=_LINK, reason="/dev/shm is full", traceparent=TRACE),
    Lent(node="node-1", epoch="e-2", link=_LINK, pages=[3, 5], traceparent=TRACE),
    LeftPages(node="node-0", epoch="e-1", link=_LINK, pages=[5], traceparent=TRACE),
]

PAYLOAD = Payload(
    request_id="r-1",
    attempt=1,
    gateway="gw-0",
    model="smol",
    prompt_token_ids=[1, 200, 40000],
    sampling=_SAMPLING,
    outputs=[Output([7], "stop")],
    traceparent=TRACE,
    num_crashes=1,
    enqueued_s=1_700_000_000.25,
    due_s=1_700_000_060.25,
    adapter="legal",
    pictures=[Picture("9f86d081884c7d65", 640, 480, 1225, b"GIF")],
    partition="0123456789abcdef0123456789abcdef",
    weights="da1253ce9af75a85",
)

EXAMPLES: list[Message | Payload] = [*MESSAGES, PAYLOAD]


def least(value: Any) -> Any:
    """The same, down to the innermost part, with nothing given that has a default."""
    if isinstance(value, list):
        return [least(part) for part in value]
    if not is_record(value):
        return value
    return type(value)(**{field.name: least(getattr(value, field.name)) for field in fields(value) if field.required})


def is_record(value: object) -> bool:
    return isinstance(value, msgspec.Struct | TokenLogprob) or is_dataclass(value)


def fields(value: object) -> tuple[inspect.Field, ...]:
    kind = inspect.type_info(type(value))
    assert isinstance(kind, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType)
    return kind.fields


def name(value: Message | Payload) -> str:
    return type(value).__name__
