"""A link between two engines as both sides see it, step by step: what csrc/link_sender.cpp and link_receiver.cpp do.

Every access to memory that both sides see is a step of its own; a row is written and read in two halves. What a side
does next is a function of the state (`moves`), so a search can try every order of steps, every death and every
deadline (`tests.gpu_node.offload.link_search`).

Tasks 0 and 1 are of one engine step, task 2 of the next; each writes keys that later ones attend to. Values are not
computed but named: a half of a row is the number of its task, an answer is that number where its rows, its table and
all keys before it were right, else `WRONG`. A task may move a block instead: one that is put has halves like a row, and
no answer; one that is called back has an answer, the block, and no rows. Neither has a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

SLOTS, TASKS = 2, 3
EMPTY, WRONG = -1, -2
DEADLINE, AT_HOME = "deadline: drops the receiver", "stays at home"
SENDER_DIES, RECEIVER_DIES = "the sender dies and comes back", "the receiver dies and comes back"
ATTEND, PUT, CALL_BACK = "apc"
Pair = tuple[int, int]


def step_of(task: int) -> int:
    """The engine step of a task."""
    return task // 2


@dataclass(frozen=True)
class Protocol:
    """The order of steps that the protocol rests on, and what it checks; defaults are the protocol itself."""

    kinds: str = ATTEND * TASKS
    """Of each task."""
    bumps_last: bool = True
    """The task counter moves when all rows and the table are written."""
    completes_last: bool = True
    """The completion counter moves when the whole answer is written."""
    checks_generation: bool = True
    """A step that was planned in another generation of the link sends nothing."""
    waits_for_acceptance: bool = True
    """Nothing is sent in a generation that the receiver has not accepted."""
    counts_gathered: bool = True
    """A slot is free when its answer was read, not when it was written."""
    looks_again: bool = True
    """Whoever says that it sleeps looks once more before it does."""
    knows_epochs: bool = True
    """A receiver attaches to no segment that was made for an earlier life of it."""


class State(NamedTuple):
    """All that both sides know."""

    # the shared segment
    generation: int = 1
    accepted: int = 0
    asked: int = 0
    served: int = 0
    is_rung: bool = False  # since the receiver last looked whether it may sleep
    sleeps: bool = False
    slots: tuple[Pair, ...] = ((EMPTY, EMPTY),) * SLOTS
    table: int = EMPTY
    answers: tuple[Pair, ...] = ((EMPTY, EMPTY),) * SLOTS
    # the sender
    at: str = "free"
    num_sent: int = 0
    num_gathered: int = 0
    plan: int = 1  # the generation in which the step's sequences were placed
    results: str = ""  # of each task: R, its answer was read, or L, it is known to be lost
    # the receiver
    does: str = "look"
    next: int = 0
    its_generation: int = 0
    read: tuple[int, ...] = ()
    keys: int = 0  # as many tasks, from the first on, have their keys in its blocks
    is_attached: bool = False
    # lives of the receiver: this one, and the one that the segment was made for
    life: int = 0
    made_for: int = 0
    deaths: str = ""  # of the sender, s, and of the receiver, r


Move = tuple[str, State]
"""What happens, by its name, and the state behind it."""


def moves(state: State, protocol: Protocol) -> Iterator[Move]:
    """All that can happen next. A violated promise is an `AssertionError`."""
    yield from _sender(state, protocol)
    yield from _receiver(state, protocol)
    yield from _faults(state)


def is_settled(state: State) -> bool:
    """Whether the sender knows of every task what became of it."""
    return len(state.results) == TASKS


def _put(pairs: tuple[Pair, ...], number: int, half: int, value: int) -> tuple[Pair, ...]:
    slot = number % SLOTS
    pair = list(pairs[slot])
    pair[half] = value
    return (*pairs[:slot], (pair[0], pair[1]), *pairs[slot + 1 :])


# --- the sender -------------------------------------------------------------------------------------------------------


def _sender(state: State, protocol: Protocol) -> Iterator[Move]:
    at, task = state.at, state.num_sent
    if at == "free":
        yield from _begin(state, protocol)
    elif at in ("row 0", "row 1"):
        yield _write_row(state, protocol)
    elif at == "table":
        yield "table written", state._replace(table=step_of(task), at="bump")
    elif at == "bump":
        bumped = state._replace(asked=state.asked + 1, at="ring")
        if not protocol.bumps_last:
            bumped = bumped._replace(table=step_of(task))
        yield "task counter moved", bumped
    elif at == "ring":
        yield "bell rung", state._replace(is_rung=True, at="wake")
    elif at == "wake":
        does = "awake" if state.sleeps and state.does == "asleep" else state.does
        is_whole = protocol.bumps_last or protocol.kinds[task] == CALL_BACK
        then = "free" if is_whole else "row 1"
        num_sent = task + 1 if is_whole else task
        yield "woken", state._replace(does=does, at=then, num_sent=num_sent)
    elif at == "drop ring":
        yield "bell rung for a drop", state._replace(is_rung=True, at="drop wake")
    elif at == "drop wake":
        does = "awake" if state.sleeps and state.does == "asleep" else state.does
        yield "woken for a drop", state._replace(does=does, at="free")
    else:
        yield from _gather(state, protocol)


def _write_row(state: State, protocol: Protocol) -> Move:
    """A half of what a task brings; of a block that is called back, its number alone."""
    task = state.num_sent
    if protocol.kinds[task] == CALL_BACK:
        asked = _put(_put(state.slots, state.asked, 0, task), state.asked, 1, task)
        return "block named", state._replace(slots=asked, at="bump")
    if protocol.kinds[task] == PUT:  # a block that is called back lies in the same place of a slot
        number = state.asked if state.at == "row 0" or protocol.bumps_last else state.asked - 1
        state = state._replace(answers=_put(state.answers, number, int(state.at == "row 1"), task))
    if state.at == "row 0":
        then = "row 1" if protocol.bumps_last else "bump"
        return "row 0 written", state._replace(slots=_put(state.slots, state.asked, 0, task), at=then)
    if not protocol.bumps_last:
        slots = _put(state.slots, state.asked - 1, 1, task)
        return "row 1 written", state._replace(slots=slots, at="free", num_sent=task + 1)
    then = "table" if protocol.kinds[task] == ATTEND else "bump"
    return "row 1 written", state._replace(slots=_put(state.slots, state.asked, 1, task), at=then)


def _begin(state: State, protocol: Protocol) -> Iterator[Move]:
    task, num_outstanding = state.num_sent, state.num_sent - state.num_gathered
    if num_outstanding > 0:
        yield "gathers", state._replace(at="wait")
    if task == TASKS:
        return
    is_accepted = state.accepted == state.generation or not protocol.waits_for_acceptance
    is_current = state.plan == state.generation or not protocol.checks_generation
    if is_current and is_accepted:
        is_first = protocol.kinds[task] == ATTEND and task > 0 and step_of(task) != step_of(task - 1)
        num_used = num_outstanding if protocol.counts_gathered else state.asked - state.served
        if num_used < SLOTS and not (is_first and state.asked != state.served):
            yield "sends", state._replace(at="row 0")
    elif num_outstanding == 0:
        yield AT_HOME, state._replace(num_sent=task + 1, num_gathered=task + 1, results=state.results + "L")
    if num_outstanding == 0 and is_accepted and state.plan != state.generation and state.is_attached:
        # the host computes what was lost and hands it over again, in the generation that it sees now
        yield "is placed again", state._replace(plan=state.generation, keys=task)
    if num_outstanding == 0 and state.made_for != state.life:
        yield "connects anew", _new_segment(state)


def _new_segment(state: State) -> State:
    """A fresh one, made for the receiver that lives now; whoever is attached to the old one writes into that."""
    fresh = State()
    return state._replace(
        generation=1,
        accepted=0,
        asked=state.num_sent,
        served=state.num_sent,
        is_rung=False,
        sleeps=False,
        slots=fresh.slots,
        table=EMPTY,
        answers=fresh.answers,
        plan=0,
        is_attached=False,
        made_for=state.life,
    )


def _gather(state: State, protocol: Protocol) -> Iterator[Move]:
    task = state.num_gathered
    number = state.asked - (state.num_sent - task)
    if state.at == "wait":
        if state.served > number and protocol.kinds[task] == PUT:
            yield "knows the block put", state._replace(at="free", num_gathered=task + 1, results=state.results + "R")
        elif state.served > number:
            yield "sees the completion counter", state._replace(at="read 0")
        num_lost = state.num_sent - task
        yield (
            DEADLINE,
            state._replace(
                generation=state.generation + 1,
                num_gathered=state.num_sent,
                results=state.results + "L" * num_lost,
                at="drop ring",
            ),
        )
        return
    half = int(state.at == "read 1")
    assert state.answers[number % SLOTS][half] == task, f"the answer of task {task} is torn or wrong"
    if half == 0:
        yield "reads 0", state._replace(at="read 1")
    else:
        yield "reads 1", state._replace(at="free", num_gathered=task + 1, results=state.results + "R")


# --- the receiver -----------------------------------------------------------------------------------------------------


def _receiver(state: State, protocol: Protocol) -> Iterator[Move]:
    does = state.does
    if does == "look":
        yield from _look(state, protocol)
    elif does == "accept 0":
        yield "forgets", _seen(state, served=state.asked, next=state.asked, does="accept 1")
    elif does == "accept 1":
        yield "accepts", _seen(state, accepted=state.its_generation, does="look")
    elif does == "says that it sleeps":
        then = "looks again" if protocol.looks_again else "sleep"
        yield "says that it sleeps", _seen(state, sleeps=True, is_rung=False, does=then)
    elif does == "looks again":
        yield "looks again", state._replace(does="awake" if _has_news(state) else "sleep")
    elif does == "sleep":  # the kernel compares and sleeps at once
        waits = not state.is_rung if protocol.looks_again else True
        yield "sleeps", state._replace(does="asleep" if waits else "awake")
    elif does == "awake":
        yield "is awake", _seen(state, sleeps=False, does="look")
    elif does != "asleep":
        yield from _serve(state, protocol)


_SHARED = frozenset({"accepted", "served", "sleeps", "is_rung", "answers"})


def _seen(state: State, **changes: Any) -> State:
    """What the receiver writes; into the shared segment only while that is the one that it is attached to."""
    if not state.is_attached:
        changes = {name: value for name, value in changes.items() if name not in _SHARED}
    return state._replace(**changes)


def _has_news(state: State) -> bool:
    return not state.is_attached or state.generation != state.its_generation or state.asked != state.next


def _look(state: State, protocol: Protocol) -> Iterator[Move]:
    if not state.is_attached:
        if state.made_for == state.life or not protocol.knows_epochs:
            yield "attaches", state._replace(is_attached=True, its_generation=0, next=state.asked, sleeps=False)
    elif state.generation != state.its_generation:
        yield "sees a new generation", state._replace(its_generation=state.generation, does="accept 0")
    elif state.asked != state.next:
        yield "sees a task", state._replace(does="take 0", read=())
    else:
        yield "sees nothing", state._replace(does="says that it sleeps")


def _serve(state: State, protocol: Protocol) -> Iterator[Move]:
    does, number = state.does, state.next
    shown = state.slots[number % SLOTS] if state.is_attached else (EMPTY, EMPTY)
    kind = protocol.kinds[state.read[0]] if state.read and state.read[0] >= 0 else ATTEND
    if does == "take 0":
        is_early = not protocol.completes_last and shown[0] >= 0 and protocol.kinds[shown[0]] == PUT
        yield "takes row 0", state._replace(read=(shown[0],), does="complete early" if is_early else "take 1")
    elif does == "complete early":
        yield "completion counter moved", _seen(state, served=number + 1, does="take 1")
    elif does == "take 1":
        then = "take table" if kind == ATTEND else "keys"
        yield "takes row 1", state._replace(read=(*state.read, shown[1]), does=then)
    elif does == "take table":
        table = state.table if state.is_attached else EMPTY
        yield "takes the table", state._replace(read=(*state.read, table), does="keys")
    elif does == "keys":
        task = state.read[0]
        tables = (step_of(task),) if kind == ATTEND else ()
        is_right = state.read == (task, task, *tables) and state.keys == task
        answer = task if is_right else WRONG
        keys = state.keys + 1 if is_right else state.keys
        if kind == PUT:
            put = state._replace(keys=keys, does="complete")
            yield "writes the block", put if protocol.completes_last else put._replace(next=number + 1, does="look")
            return
        then = "answer 0" if protocol.completes_last else "complete"
        yield "writes keys", state._replace(keys=keys, read=(answer,), does=then)
    elif does == "answer 0":
        yield "answers 0", _seen(state, answers=_put(state.answers, number, 0, state.read[0]), does="answer 1")
    elif does == "answer 1":
        then = "complete" if protocol.completes_last else "look"
        answered = _seen(state, answers=_put(state.answers, number, 1, state.read[0]), does=then)
        yield "answers 1", answered if protocol.completes_last else answered._replace(next=number + 1)
    else:
        assert does == "complete"
        if protocol.completes_last:
            yield "completion counter moved", _seen(state, served=number + 1, next=number + 1, does="look")
        else:
            yield "completion counter moved", _seen(state, served=number + 1, does="answer 0")


# --- what goes wrong --------------------------------------------------------------------------------------------------

_SENDING = frozenset({"row 0", "row 1", "table", "bump", "ring", "wake"})


def _faults(state: State) -> Iterator[Move]:
    if is_settled(state):
        return
    if "s" not in state.deaths:
        num_lost = state.num_sent - state.num_gathered + (state.at in _SENDING)
        settled = state.num_gathered + num_lost
        results = state.results + "L" * (settled - len(state.results))
        dead = state._replace(results=results[:TASKS], num_sent=settled, num_gathered=settled, at="free")
        yield SENDER_DIES, _new_segment(dead)._replace(deaths=state.deaths + "s")
    if "r" not in state.deaths:
        reborn = state._replace(does="look", read=(), keys=0, is_attached=False, life=state.life + 1)
        yield RECEIVER_DIES, reborn._replace(its_generation=0, deaths=state.deaths + "r")
