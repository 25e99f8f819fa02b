"""The fuzzer finds faults that are planted, each by another of its means, and lets pass what is in order."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest

from gpu_node.models.config import Family
from tests.fuzz.bounds import ROOM_BYTES, bounded
from tests.fuzz.box import Box, Counts
from tests.fuzz.campaign import Finding, Tally, inputs, run
from tests.fuzz.corpus import keep
from tests.fuzz.gguf_bytes import parsed, written
from tests.fuzz.model_weights import gguf_model, safetensors_model
from tests.fuzz.mutators import MAX_BYTES, MUTATIONS
from tests.fuzz.target import Target, refused, rule
from tests.fuzz.targets import TARGETS
from tests.fuzz.trees import msgpack_mutator

EXAMPLE = msgspec.msgpack.encode({"name": "loom", "sizes": [1, 2, 3], "text": "hello"})


def errors_of(check: Callable[[bytes], bool], num_inputs: int = 3000) -> set[str]:
    """Kinds of findings."""
    target = Target("planted", lambda: [EXAMPLE], check, msgpack_mutator)
    with bounded():
        tally = run(target, islice(inputs(target, 1), num_inputs))
    return {finding.error.partition(":")[0] for finding in tally.findings.values()}


def test_an_exception_that_is_not_documented_is_found() -> None:
    def check(data: bytes) -> bool:
        return not refused(lambda: msgspec.msgpack.decode(data), msgspec.DecodeError)

    assert errors_of(check) == {"UnicodeDecodeError", "RecursionError"}


def test_a_length_that_is_believed_is_found() -> None:
    def check(data: bytes) -> bool:
        return len(np.empty(int.from_bytes(data[-4:], "little"), np.uint8)) > 0

    assert errors_of(check) == {"MemoryError"}


def test_no_clock_runs_outside_of_the_bounds() -> None:
    """It would end the whole test run some time later."""
    run(Target("planted", list, lambda data: True), [b"a"])
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    with bounded():
        run(Target("planted", list, lambda data: True), [b"a"])
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_an_input_that_takes_too_long_is_found() -> None:
    def check(data: bytes) -> bool:
        end_s = time.thread_time() + (0.6 if data == b"slow" else 0.0)
        while time.thread_time() < end_s:
            pass
        return True

    tally = run(Target("planted", list, check), [b"quick", b"slow"])
    assert [finding.data for finding in tally.findings.values()] == [b"slow"]


def test_a_value_that_may_not_come_out_is_found() -> None:
    def check(data: bytes) -> bool:
        found: list[object] = []
        if refused(lambda: found.append(msgspec.msgpack.decode(data)), Exception):
            return False
        rule(found[0] != {"name": "loom", "sizes": [1, 2], "text": "hello"}, "sizes are three")
        return True

    assert errors_of(check) == {"BrokenRuleError"}


def test_a_refusal_that_cannot_be_logged_or_says_nothing_is_found() -> None:
    def refuse(text: str) -> Callable[[bytes], bool]:
        def decode() -> None:
            raise ValueError(text)

        return lambda data: not refused(decode, ValueError)

    assert errors_of(refuse("\ud800"), 1) == {"UnicodeEncodeError"}
    assert errors_of(refuse(""), 1) == {"BrokenRuleError"}
    assert errors_of(refuse("it is wrong"), 1) == set()


def test_findings_at_one_place_are_one_and_keep_the_first_input(tmp_path: Path) -> None:
    def check(data: bytes) -> bool:
        raise KeyError(data)

    tally = run(Target("planted one", list, check), [b"a", b"b"])
    assert (tally.num_inputs, tally.num_decoded, tally.num_found) == (2, 0, 2)
    (finding,) = tally.findings.values()
    path = keep(finding, tmp_path)
    assert path.parent == tmp_path / "planted_one"
    assert path.read_bytes() == b"a"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_changes_something_and_takes_empty_inputs(mutation: Callable[..., bytearray]) -> None:
    rng = Random(1)
    changed = [mutation(bytearray(EXAMPLE), [EXAMPLE, b"other"], rng) for _ in range(40)]
    assert any(one != EXAMPLE for one in changed)
    assert len(mutation(bytearray(), [b""], rng)) <= 64


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_are_bounded_and_examples_are_real(name: str) -> None:
    target = TARGETS[name]
    assert all(len(data) <= MAX_BYTES for data in islice(inputs(target, 3), 200))
    assert any(target.check(example) for example in target.examples())


def test_a_gguf_file_is_a_tree_and_back() -> None:
    data = gguf_model(Family.MIXTRAL)
    assert written(parsed(data)) == data
    assert parsed(data)["keys"][0] == ["general.architecture", 8, "llama"]


def test_a_safetensors_file_has_its_header_in_front() -> None:
    data = safetensors_model(Family.GPT2)
    length = int.from_bytes(data[:8], "little")
    header = msgspec.json.decode(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(data) - 8 - length


def test_a_box_keeps_what_a_process_was_doing_when_it_ended(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tests.fuzz.box import Box, Counts\n"
        "Box(Path(sys.argv[1])).write(Counts(7, 3, 1, 4096), b'the last input'); os._exit(9)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "box")], timeout=60)
    assert ended.returncode == 9
    assert Box(tmp_path / "box").read() == (Counts(7, 3, 1, 4096), b"the last input")


def test_memory_is_given_back_its_bound() -> None:
    with bounded(), pytest.raises(MemoryError):
        np.empty(2 * ROOM_BYTES, np.uint8)
    assert len(np.empty(2 * ROOM_BYTES, np.uint8)) == 2 * ROOM_BYTES


def test_a_tally_counts_what_was_decoded() -> None:
    tally = Tally()
    target = Target("planted", list, lambda data: data != b"refused")
    assert [tally.feed(target, data) for data in (b"taken", b"refused")] == [None, None]
    assert (tally.num_inputs, tally.num_decoded) == (2, 1)
    assert Finding("t", b"", "", "").digest == "e3b0c44298fc"
