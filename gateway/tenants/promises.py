"""Which promise a request gets: its own wish, within what its key allows."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.openai.errors import errors
from gateway.openai.requests.schema import SloChoice
from gateway.tenants.auth import Client
from shared.config.config import ClusterConfig
from shared.messages.requests.slo import CUSTOM, Slo

SLO_HEADER = "x-treadle-slo"


@dataclass(frozen=True)
class Promise:
    """An SLO, and how long a request with it may wait for its first token."""

    slo: Slo
    queue_ttl_s: float


def choose_promise(
    config: ClusterConfig,
    client: Client,
    wish: SloChoice | None,
    header: str | None,
    batch_deadline_s: float | None = None,
) -> Promise:
    """The body's wish, else the header's class, else the default; `ApiError` if unknown (400) or not allowed (403).

    The default is the gateway's class, or the first class of a key that may not ask for that one; of a request of a
    batch, that it is answered within ``batch_deadline_s``, for which it may wait.
    """
    if wish is None and header is None and batch_deadline_s is not None:
        return Promise(Slo(name=CUSTOM, deadline_s=batch_deadline_s), batch_deadline_s)
    if wish is not None and wish.class_name is None:
        return _custom(config, client, wish)
    name = wish.class_name if wish is not None else header
    if name is None:
        name = _default(config, client)
    elif name not in config.slo_classes:
        known = ", ".join(config.slo_classes)
        # what stands in a wrong header may be a key
        what = f"{SLO_HEADER!r} names no SLO class" if wish is None else f"{name!r} is no SLO class"
        raise errors.invalid(f"{what}; there are: {known}", "slo", code="unknown_slo_class")
    if name not in _allowed(config, client):
        raise errors.slo_not_allowed(f"the SLO class {name!r}", _allowed(config, client))
    return Promise(config.slo(name), config.slo_classes[name].queue_ttl_s)


def check_window(config: ClusterConfig, client: Client, window_s: float) -> None:
    """`ApiError` 403 where the key may not ask for answers within the window of a batch."""
    _check_custom(config, client, Slo(name=CUSTOM, deadline_s=window_s))


def _custom(config: ClusterConfig, client: Client, wish: SloChoice) -> Promise:
    """Numbers: a key that is limited to some classes may ask for nothing tighter than one of them."""
    slo = Slo(name=CUSTOM, ttft_s=wish.ttft_s, tpot_s=wish.tpot_s, deadline_s=wish.deadline_s)
    _check_custom(config, client, slo)
    # A promise of its own does not change how long a request is worth holding: that is the default class's business.
    return Promise(slo, config.slo_classes[_default(config, client)].queue_ttl_s)


def _check_custom(config: ClusterConfig, client: Client, slo: Slo) -> None:
    if client.slo_classes is not None and not any(_covers(config.slo(name), slo) for name in client.slo_classes):
        raise errors.slo_not_allowed("an SLO tighter than its classes", _allowed(config, client))


def _covers(given: Slo, wanted: Slo) -> bool:
    """Whether ``given`` promises at least as much; a deadline promises a first token by then."""
    start_s = [bound for bound in (given.ttft_s, given.deadline_s) if bound is not None]
    pairs = [
        (min(start_s, default=None), wanted.ttft_s),
        (given.tpot_s, wanted.tpot_s),
        (given.deadline_s, wanted.deadline_s),
    ]
    return all(want is None or (have is not None and have <= want) for have, want in pairs)


def _allowed(config: ClusterConfig, client: Client) -> list[str]:
    return list(config.slo_classes if client.slo_classes is None else client.slo_classes)


def _default(config: ClusterConfig, client: Client) -> str:
    default = config.gateway.default_slo
    return default if not client.slo_classes or default in client.slo_classes else client.slo_classes[0]
