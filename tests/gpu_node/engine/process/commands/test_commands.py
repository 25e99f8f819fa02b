"""Commands to an engine whose steps are predicted, and what its agent hears."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from gpu_node.engine.engine import Engine
from gpu_node.engine.process.commands.commands import Commands, ImageEvent
from gpu_node.engine.process.commands.prefix_commands import PrefixCommands
from gpu_node.engine.process.protocol.prefix_protocol import (
    CopyPrefix,
    FindPrefix,
    PrefixCopied,
    PrefixFound,
    PrefixTaken,
)
from gpu_node.engine.process.protocol.protocol import (
    NO_IMAGE,
    AbortRequests,
    Command,
    EngineEvent,
    HandOverImages,
    Image,
    ImageFile,
    LoadModel,
    ModelLoaded,
    ReleaseImages,
    Reset,
    RunAttempt,
    Shutdown,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.image import Growth, HandedOver, Kept
from gpu_node.executors.predicted.executor import PredictedExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.requests.payload import Payload, Sampling

OPTIONS = EngineOptions(block_size=4, kv_cache_bytes=1 << 20, evicted_kv_bytes=1 << 20, async_scheduling=False)
SPEC = ModelSpec(name="m", source="none", max_model_len=64)


def engine() -> Engine:
    one = Engine(PredictedExecutor(StepCost(1.0, 0.0, 0.0), OPTIONS, token_kv_bytes=1024, vocab_size=256), OPTIONS)
    one.load_model(SPEC)
    return one


class InOnePiece:
    """An `ImagePort` that writes nothing: the path says what it would have written."""

    def __init__(self, send: Callable[[EngineEvent], None]) -> None:
        self._send = send

    def give(self, images: Iterable[HandedOver], told: ImageEvent) -> None:
        for image in images:
            self._send(told(image, ImageFile(str(image.number), image.num_bytes)))

    def make(self, number: int, num_bytes: int) -> memoryview:
        del number
        return memoryview(bytearray(num_bytes))

    def growing_file(self, growth: Growth) -> ImageFile:
        return ImageFile(str(growth.number), growth.most_bytes)

    def take(self, file: ImageFile) -> bytes:
        return file.path.encode()

    def release(self, numbers: Iterable[int]) -> None:
        del numbers


def run(request_id: str, model: str = "m") -> RunAttempt:
    return RunAttempt(Payload(request_id, 0, "g", model, [1, 2, 3], Sampling(max_tokens=8)))


def carried_out(one: Engine, *commands: Command) -> tuple[list[EngineEvent], object, list[Command]]:
    """What was told, the command that is the process's own, and those behind it."""
    told: list[EngineEvent] = []
    left = deque(commands)
    carrying = Commands(one, told.append, InOnePiece(told.append))
    own = carrying.carry_out(left)
    carrying.report()
    return told, own, list(left)


def shape(event: EngineEvent) -> tuple[object, ...]:
    match event:
        case StepReport(chunks, stats):
            return "report", [(chunk.request_id, chunk.finish_reason) for chunk in chunks], stats.num_waiting
        case TakenOut(kept, _):
            return "out", kept
        case Image(request_id, attempt, number):
            return "image", request_id, attempt, number
    raise AssertionError(event)


def test_commands_up_to_the_first_that_is_the_process_s_own() -> None:
    one = engine()
    told, own, left = carried_out(one, run("a"), run("b", model="other"), LoadModel("m"), run("c"))
    assert own == LoadModel("m")
    assert left == [run("c")]
    assert [shape(event) for event in told] == [("report", [("b", "error")], 1)]
    _, own, left = carried_out(one, Shutdown(), run("c"))
    assert own == Shutdown()
    assert left == [run("c")]


def test_what_ended_before_an_eviction_is_told_before_it() -> None:
    one = engine()
    carried_out(one, run("a"))
    one.step(0.0)
    told, own, _ = carried_out(one, run("b", model="other"), TakeOut(["a", "nobody's"]), HandOverImages(["a", "b"]))
    assert own is None
    assert [shape(event) for event in told] == [
        ("report", [("b", "error")], 0),
        ("out", [Kept("a", 3)]),
        ("image", "a", 0, 1),
        ("report", [], 0),
    ]


def test_an_image_counts_until_it_is_released() -> None:
    one = engine()
    carried_out(one, run("a"))
    one.step(0.0)
    carried_out(one, TakeOut(["a"]), HandOverImages(["a"]))
    assert one.stats().evicted_kv_bytes == 4096
    carried_out(one, Reset())
    assert one.stats().evicted_kv_bytes == 4096, "it is on its way"
    carried_out(one, ReleaseImages([1, 7]))
    assert one.stats().evicted_kv_bytes == 0
    one.check()


def test_what_is_cached_of_a_prompt_is_told_and_a_prefix_that_is_none_is_computed() -> None:
    """Blocks of 4 tokens; a predicted device's have no content that another could read."""
    one = engine()
    carried_out(one, RunAttempt(Payload("a", 0, "g", "m", list(range(13)), Sampling(max_tokens=1))))
    one.step(0.0)
    ask = PrefixAsk("c", 0, "m", "", "f", list(range(13)), 0)
    told, _, _ = carried_out(one, FindPrefix("b", 0, "m", "", list(range(10))), CopyPrefix(3, ask))
    assert told[:2] == [PrefixFound("b", 0, 8, 8), PrefixCopied(3, 0, NO_IMAGE)]
    payload = Payload("b", 0, "g", "m", list(range(10)), Sampling(max_tokens=1))
    told, _, _ = carried_out(one, RunAttempt(payload, prefix=ImageFile("torn", 4)))
    assert told[0] == PrefixTaken(0, is_refused=True)
    assert one.stats().num_waiting == 1, "it runs"


def test_an_engine_that_exchanges_nothing_has_nothing() -> None:
    told: list[EngineEvent] = []
    commands = PrefixCommands(object(), told.append, InOnePiece(told.append))
    commands.carry_out(FindPrefix("b", 0, "m", "", [1]))
    commands.carry_out(CopyPrefix(3, PrefixAsk("c", 0, "m", "", "f", [1], 0)))
    commands.take_in(Payload("b", 0, "g", "m", [1], Sampling(max_tokens=1)), ImageFile("torn", 4))
    assert told == [PrefixFound("b", 0, 0, 0), PrefixCopied(3, 0, NO_IMAGE), PrefixTaken(0, is_refused=True)]


def test_aborted_and_reset_requests_are_gone() -> None:
    one = engine()
    told, _, _ = carried_out(one, run("a"), run("b"), AbortRequests(["a", "nobody's"]))
    assert [shape(event) for event in told] == [("report", [], 1)]
    carried_out(one, Reset())
    assert not one.has_work


def test_a_model_that_is_loaded_is_told_with_where_it_came_from() -> None:
    one = engine()
    told: list[EngineEvent] = []
    Commands(one, told.append, InOnePiece(told.append)).loaded(one.load_model(SPEC), load_s=2.5, source="disk")
    assert told == [
        ModelLoaded(
            model="m",
            num_blocks=256,
            block_size=4,
            block_bytes=4096,
            max_model_len=64,
            load_s=2.5,
            source="disk",
            tiers={"m": "device"},
        )
    ]
