"""A schedule in which nodes read each other's caches: clients whose prompts begin alike, and faults that meet fetches.

All of it is drawn of the seed, beside what `drawn_setup` draws: that stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from shared.messages.requests.payload import Sampling
from tests.schedules.cached import BLOCK_SIZE
from tests.schedules.orders import Order
from tests.schedules.process import Armed, Fault
from tests.schedules.setup import ALL_KINDS, FAULTS_S, Kind, Planned, Setup, drawn_setup

FETCHING = 3
"""Of seeds modulo eight: there, nodes read each other's caches."""
APART = 0x5EED
"""What is drawn here is not what is drawn there."""
MAX_BLOCKS = 28
"""Of a prompt: short of what has names of several blocks."""
FAULTS: tuple[Fault, ...] = ("die before", "die after", "answer lost", "freeze before", "freeze after")
COMMANDS = ("prefix ask", "prefix copy", "prefix copy", "prefix fetched")


def schedule_setup(seed: int, kinds: tuple[Kind, ...] = ALL_KINDS, *, all_fetch: bool = False) -> Setup:
    """What follows from a seed, with fetches in an eighth of all, or in all."""
    return fetching_setup(seed, kinds) if all_fetch or seed % 8 == FETCHING else drawn_setup(seed, kinds)


def fetching_setup(seed: int, kinds: tuple[Kind, ...] = ALL_KINDS) -> Setup:
    """What follows from a seed, with two or three nodes and fetches between them."""
    drawn = drawn_setup(seed, kinds)
    chance = Random(seed ^ APART)
    model = drawn.orders[0][1].model if chance.random() < 0.7 else ""
    orders = tuple((number, _alike(order, chance, model)) for number, order in drawn.orders)
    bursts_s = tuple(1.0 + 4.0 * chance.random() for _ in range(2))
    further = tuple(
        (chance.randrange(drawn.num_gateways), _another(f"s{number}", chance, drawn, bursts_s))
        for number in range(chance.randint(4, 9))
    )
    has_faults = bool(drawn.faults)
    faults = tuple(_fault(chance) for _ in range(chance.choice((0, 1, 1, 2)) if has_faults else 0))
    return replace(
        drawn,
        num_nodes=chance.choice((2, 3, 3)),
        latency_s=chance.choice((0.002, 0.002, 0.002, 0.05)),  # the KV manager is not waited for for long
        speed=replace(drawn.speed, step_s=chance.choice((0.1, 0.2)), max_num_seqs=chance.choice((1, 1, 2))),
        orders=(*orders, *further),
        faults=(*drawn.faults, *faults),
        fetches=True,
    )


def _alike(order: Order, chance: Random, model: str = "") -> Order:
    """Its prompt goes on behind a beginning that others have, too."""
    text, num_blocks = int(chance.random() < 0.25), chance.randint(10, MAX_BLOCKS)
    return replace(order, model=model or order.model, prompt=[*[2 + text] * (num_blocks * BLOCK_SIZE), *order.prompt])


def _another(name: str, chance: Random, setup: Setup, bursts_s: tuple[float, ...]) -> Order:
    """One who comes with others, when not all can begin where their beginning is; some leave while it is fetched."""
    comes_s = chance.choice(bursts_s) + 0.3 * chance.random()
    leaves_s = comes_s + 1.5 * chance.random() if chance.random() < 0.25 else None
    first = setup.orders[0][1]
    order = Order(
        request_id=name,
        model=first.model,
        slo=first.slo,
        prompt=[1] * chance.randint(1, 9),
        sampling=Sampling(max_tokens=chance.randint(1, 12), seed=chance.randrange(1_000)),
        drawn_tokens=chance.randint(1, 16),
        has_stop=False,
        comes_s=comes_s,
        leaves_s=leaves_s,
    )
    return _alike(order, chance)


def _fault(chance: Random) -> Planned:
    seconds = 3.0 * chance.random() ** 2
    return Planned(
        at_s=FAULTS_S * chance.random(),
        kind="process fault",
        victim=chance.randrange(1_000),
        seconds=seconds,
        share=0.0,
        step_s=0.0,
        armed=Armed(chance.choice(FAULTS), "node", chance.choice(COMMANDS), seconds),
    )
