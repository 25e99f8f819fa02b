"""Messages about requests: from gateways to the queue manager, from there to nodes, and tokens back to gateways."""

from __future__ import annotations

import msgspec

from shared.messages.message import Message
from shared.messages.prefixes.prefix_sources import PrefixSource
from shared.messages.prefixes.prefixes import PromptPrefix
from shared.messages.requests.slo import Slo
from shared.messages.requests.token_logprob import TokenLogprob

DEFAULT_TENANT = "default"  # whose requests are where no tenant is named: there are no keys
HANDED_OVER = "*"  # in place of a node's name: the node that pulls the request fetches the KV by its `ImageTicket`


# --- requests: gateway <-> queue manager ----------------------------------------------------------------------------


class Submit(Message, frozen=True, kw_only=True):
    """A request wants to run. Sent again, with the next ``attempt``, when the node that ran it was lost.

    The tokens travel apart, in the payload key (`Payload`); this is what the queue needs to decide.
    """

    request_id: str
    gateway: str
    model: str
    slo: Slo
    prompt_tokens: int
    """To be computed before the first new one: the prompt, and what the client has of the choices that still run."""
    max_tokens: int
    """To be drawn at most, by all candidates together."""
    tenant: str = DEFAULT_TENANT
    attempt: int = 0
    wants_place: bool = False
    """The client would like to hear of its place in the queue while it waits (`QueueStatus.places`)."""
    done_tokens: int = 0
    """Of a further attempt: by how much ``max_tokens`` has become less since the first."""
    waited_s: float = 0.0
    """Of a further attempt: seconds since the first, should that be forgotten."""
    needs: str = ""
    """What not every engine can do (`Sampling.needs`); ``""``: any node with the model will do."""
    prefix: PromptPrefix | None = None
    """Names of beginnings of the prompt, where requests go to what is cached of them; None for a short one."""


class Cancel(Message, frozen=True, kw_only=True):
    """The client left, or the gateway gave up: forget the request and free what it holds."""

    request_id: str


class GatewayBeat(Message, frozen=True, kw_only=True):
    """A gateway replica is alive. Without it for `GATEWAY_TIMEOUT_S`, its requests are cancelled."""

    gateway: str
    inventory: int = 0
    """Number of the `GatewayInventory` that comes next, of which this is the date; 0: none comes."""


class GatewayGone(Message, frozen=True, kw_only=True):
    """A gateway replica says goodbye after draining: what it still had is cancelled at once."""

    gateway: str


class Resubmit(Message, frozen=True, kw_only=True):
    """Queue manager to gateway: what was computed of these is lost; submit them again with what the client has."""

    requests: list[Attempt]
    gave_way: bool = False
    """A plan took them off their node without their KV, or Redis lost them; else the node is lost."""
    has_crashed: bool = False
    """The engine died with these: one of them may be the reason."""


class Rejected(Message, frozen=True, kw_only=True):
    """Queue manager to gateway: the promise cannot be kept, and the class would rather know at once than be late."""

    request_id: str
    attempt: int
    wait_s: float
    """Predicted time until it could have started."""
    retry_after_s: float
    """Predicted time until such a request could be accepted."""


class QueueLine(msgspec.Struct, frozen=True):
    """How it stands for the requests of one model and one kind of promise."""

    model: str
    slo: str
    num_waiting: int
    num_running: int
    wait_s: float
    """Predicted time to the first token of a request that comes now; ``inf`` while no node can serve the model."""
    wait_p90_s: float
    """The time that it will not exceed with a probability of 90 %; ``inf`` likewise."""


class QueuePlace(msgspec.Struct, frozen=True):
    """Where one waiting request stands."""

    request_id: str
    num_ahead: int
    """Requests that are predicted to start before it on its node."""
    wait_s: float
    wait_p90_s: float
    num_others_ahead: int = 0
    """Of ``num_ahead``, those of other tenants."""


class TenantLine(msgspec.Struct, frozen=True):
    """The same as a line for the requests of one tenant alone."""

    tenant: str
    line: QueueLine


class QueueStatus(Message, frozen=True, kw_only=True):
    """Queue manager to a gateway, now and then: the state of the queue, and the places of its requests that asked."""

    lines: list[QueueLine]
    places: list[QueuePlace] = []
    tenant_lines: list[TenantLine] = []
    """By tenant; none where all requests are the default tenant's."""


class Attempt(msgspec.Struct, frozen=True):
    """One run of one request. Tokens of an older attempt than the gateway knows are dropped."""

    request_id: str
    attempt: int


# --- requests: queue manager <-> node -------------------------------------------------------------------------------


class ImageTicket(msgspec.Struct, frozen=True):
    """Where a request's KV waits that a node has handed over, and the right to fetch it, once."""

    node: str
    """That gave it."""
    url: str
    """Of the image, as other nodes reach it."""
    token: str
    """Secret, and this image's own."""
    num_bytes: int

    def __repr__(self) -> str:
        """Without the secret: messages are logged."""
        return f"ImageTicket({self.node!r}, {self.url!r}, num_bytes={self.num_bytes})"


class Enqueued(Message, frozen=True, kw_only=True):
    """An entry of a group stream: this attempt of this request waits for a node."""

    request_id: str
    attempt: int
    gateway: str
    kv_at: str = ""
    """The node that keeps the KV of the request in host memory since it was evicted there, or `HANDED_OVER`."""
    image: ImageTicket | None = None
    """Of what was handed over."""
    prefix_at: PrefixSource | None = None
    """Whose cache has more of the prompt, where reading it there is quicker than computing it."""


class GroupRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request group as a node sees it in its virtual queue."""

    group: str
    model: str
    num_waiting: int
    max_running: int | None = None
    """It is pulled from only while fewer requests run here, and none gives way to it; None: as long as they fit."""
    max_unread: int | None = None
    """And only while fewer prompts wait here to be computed: a newcomer has those before it; None: any."""


class VirtualQueue(Message, frozen=True, kw_only=True):
    """The head of a node's virtual queue, in order; it replaces the last one. Doubles as the bell for new entries."""

    node: str
    epoch: str
    groups: list[GroupRef]
    yielding: list[str] = []
    """Groups with running requests behind the first one without ``max_running``: evicted where it could not start
    otherwise."""
    hopeless: list[str] = []
    """Models of these groups that no node can load: their requests are answered with the reason that this node has.

    Another model that is broken here is left alone: its groups are about to move to a node that may have it.
    """
    awaits: str = ""
    """The model to load, once nothing is left to do here, for requests that are known to come; ``""``: none."""
    decoded_elsewhere: list[str] = []
    """Of a node that only prefills, models that others go on with: their requests are handed over once their prompts
    are computed."""
    read_ahead: list[str] = []
    """Of these, models whose KV others read while prompts are computed, where it says that there is some
    (`KvOpened`)."""


class Evict(Message, frozen=True, kw_only=True):
    """Queue manager to node: take these out of the engine and hand their KV over, so that another node can go on.

    Some may run, some may have been evicted before and wait with their KV here. Answered by `Evicted`.
    """

    node: str
    epoch: str
    requests: list[Attempt]
    drops_kv: bool = False
    """Where they are to go, their KV is of no use: it is dropped, and another attempt of each computes it again."""


class EvictedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that was taken out of an engine before its end. Its tokens so far have been published."""

    request_id: str
    attempt: int
    output_tokens: int
    """Of all choices, with those of earlier attempts."""
    kv_tokens: int
    """Tokens whose KV was kept; 0 where there was no room for it, and another attempt has to compute it again."""
    kv_at: str
    """Where: this node, or `HANDED_OVER`."""
    image: ImageTicket | None = None
    """Of what was handed over."""


class Evicted(Message, frozen=True, kw_only=True):
    """A node has given requests back; sent in the transaction that acknowledges their group entries."""

    node: str
    epoch: str
    requests: list[EvictedRequest]
    number: int = 0
    """As in `Pulled`; the same where it is told again because it is not known whether it was heard."""


class KvOpened(Message, frozen=True, kw_only=True):
    """Node to queue manager: KV of this request can be read while its prompt is computed. It goes on here meanwhile."""

    node: str
    epoch: str
    request: Attempt
    image: ImageTicket
    """Of what is there so far and comes; the size is what all of it is expected to have."""


class ReadAhead(Message, frozen=True, kw_only=True):
    """Queue manager to node: the request will probably go on here. Nothing is answered.

    What has been read is used when the node pulls the request with the same image, and dropped when that is gone.
    """

    node: str
    epoch: str
    request: Attempt
    image: ImageTicket


class Pulled(Message, frozen=True, kw_only=True):
    """A node took these entries of a group. Written by the same script that took them, so neither exists alone."""

    node: str
    epoch: str
    group: str
    requests: list[Attempt]
    number: int = 0
    """Of what this epoch tells of its requests, from 1 on: what comes late, or twice, is known by it. 0: none."""


class Abort(Message, frozen=True, kw_only=True):
    """Queue manager to node: stop these attempts and free their memory. Nothing is answered."""

    requests: list[Attempt]


class FinishedRequest(msgspec.Struct, frozen=True):
    """How one attempt ended on a node; ``reason`` as `Chunk.finish_reason` of its last chunk."""

    request_id: str
    attempt: int
    reason: str
    output_tokens: int
    """Of all choices, with those of earlier attempts."""


class Finished(Message, frozen=True, kw_only=True):
    """Attempts that ended on a node in one step; sent in the transaction that acknowledges their group entries."""

    node: str
    epoch: str
    requests: list[FinishedRequest]


# --- tokens: node -> gateway ----------------------------------------------------------------------------------------


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """New tokens of one choice of one attempt. ``index`` is the place of the first of them in the choice's output."""

    request_id: str
    attempt: int
    index: int
    token_ids: list[int]
    finish_reason: str = ""
    """``""`` while the choice runs; ``stop`` or ``length`` at its end; ``refused`` (it can never run) and ``error``
    end the request with all choices, and ``error`` says why."""
    error: str = ""
    choice: int = 0
    """Which of the request's continuations, from 0 on."""
    logprobs: list[TokenLogprob] = []
    """One a token where the request asked for them, else empty."""
    is_last: bool = False
    """No chunk of this attempt follows: every choice has ended."""
    cached_tokens: int | None = None
    """Of the prompt, tokens whose KV lay in a cache when this attempt was admitted first, and were not computed for it.
    Said once, with the first token of the first choice, to a client that has nothing yet; None: it is not said."""
    embedding: bytes = b""
    """In the place of tokens, where the request asks for it (`Sampling.is_embedding`): float32, little-endian, not
    normalised; of a model that scores, its logits: of no and yes, or of its one label. It is the whole answer, so the
    chunk ends it."""


class Tokens(Message, frozen=True, kw_only=True):
    """All new tokens of one engine step for one gateway replica."""

    node: str
    chunks: list[Chunk]
