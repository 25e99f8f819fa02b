"""The node's watch over the models of its configuration's file."""

from __future__ import annotations

from pathlib import Path

from gpu_node.agent.process.model_watch import Models, ModelWatch
from shared.config.config import ConfigError
from shared.config.engines.engine import ModelSpec
from shared.config.reading.file_watch import FileWatch

A, B = (ModelSpec(name=name, source=f"{name}.gguf") for name in "ab")


async def test_what_stands_still_is_read_and_told_once(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("one")
    answers: list[Models | ConfigError] = [(A,), (A, B), ConfigError("broken"), (A, B), (B,), (B,)]

    def read() -> Models:
        answer = answers.pop(0)
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    watch = ModelWatch(FileWatch(path), read, (A,))
    looks = []
    for text in ("one", "one, two", "broken", "two", "two"):
        path.write_text(text)
        looks.append([await watch.look() for _ in range(3)])
    assert looks == [
        [False, True, False],  # as it was read at start-up
        [False, True, False],
        [False, False, True],  # broken, and read again at the next look
        [False, True, False],
        [False, True, False],  # the same models: what could not be loaded is tried again
    ]
    assert (watch.models, answers, watch.is_settled) == ((B,), [], True)


async def test_what_was_read_while_the_file_changed_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("one")

    def read() -> Models:
        path.write_text("one, two")
        return (B,)

    watch = ModelWatch(FileWatch(path), read, (A,))
    assert [await watch.look() for _ in range(2)] == [False, False]
    assert (watch.models, watch.is_settled) == ((A,), False)


async def test_an_epoch_begins_with_what_the_file_says_or_said_last(tmp_path: Path) -> None:
    answers: list[Models] = [(A, B)]

    def read() -> Models:
        if not answers:
            raise ConfigError("broken")
        return answers.pop()

    watch = ModelWatch(FileWatch(tmp_path / "cluster.yaml"), read, (A,))
    for _ in range(2):
        await watch.read()
        assert watch.models == (A, B)
