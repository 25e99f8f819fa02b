"""A process that feeds one target. It may be ended by any input: what it has done stands in its box."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.bounds import bounded, resident_bytes
from tests.fuzz.box import Box, Counts
from tests.fuzz.campaign import Tally, inputs
from tests.fuzz.corpus import keep
from tests.fuzz.mutators import MAX_BYTES
from tests.fuzz.target import Target

_LOOKS_EVERY = 1024
"""Inputs between two looks at the process's memory."""
_OWN_MUTATIONS = 0.7
"""Share of mutations that are the target's own; the others are libFuzzer's."""


class Feeder:
    """Feeds inputs and keeps the books."""

    def __init__(self, target: Target, box: Box, findings: Path) -> None:
        self._target = target
        self._box = box
        self._findings = findings
        self._tally = Tally()
        self._before_bytes = resident_bytes()
        self._grown_bytes = 0

    def feed(self, data: bytes) -> None:
        """One input."""
        tally = self._tally
        self._write(data)
        finding = tally.feed(self._target, data)
        if finding is not None:
            sys.stdout.write(f"{keep(finding, self._findings)}\t{finding.place}\t{finding.error}\n")
            sys.stdout.flush()
        if tally.num_inputs % _LOOKS_EVERY == 0:
            self._grown_bytes = max(resident_bytes() - self._before_bytes, 0)

    def close(self) -> None:
        """The last numbers."""
        self._write(b"")

    def _write(self, data: bytes) -> None:
        tally = self._tally
        self._box.write(Counts(tally.num_inputs, tally.num_decoded, tally.num_found, self._grown_bytes), data)


def feed_mutations(target: Target, feeder: Feeder, num_inputs: int, seed: int) -> None:
    """Neighbours of the examples, without a look at coverage."""
    for data in islice(inputs(target, seed), num_inputs):
        feeder.feed(data)
    feeder.close()


def feed_guided(fuzzer: Any, target: Target, feeder: Feeder, num_inputs: int, seed: int, folder: Path) -> None:
    """libFuzzer's loop: what reaches new lines becomes an example. It ends the process."""
    examples = list(target.examples())
    seeds = folder / "seeds"
    seeds.mkdir(exist_ok=True)
    for number, example in enumerate(examples):
        (seeds / str(number)).write_bytes(example)
    num_fed = 0

    def feed(data: bytes) -> None:
        nonlocal num_fed
        num_fed += 1
        feeder.feed(data)
        if num_fed >= num_inputs:
            feeder.close()

    def mutate(data: bytes, max_size: int, chance: int) -> bytes:
        rng = Random(chance)
        if rng.random() < _OWN_MUTATIONS:
            return target.mutate(data, examples, rng)[:max_size]
        changed: bytes = fuzzer.Mutate(data, max_size)
        return changed

    options = [f"-runs={num_inputs}", f"-seed={seed + 1}", f"-max_len={MAX_BYTES}", "-len_control=0"]
    options += ["-mutate_depth=1", "-rss_limit_mb=0"]
    fuzzer.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", str(seeds)], feed, custom_mutator=mutate)
    fuzzer.Fuzz()


def main() -> None:
    """Called by `tests.fuzz.fleet`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--box", type=Path, required=True)
    parser.add_argument("--findings", type=Path, required=True)
    parser.add_argument("--guided", action="store_true")
    options = parser.parse_args()
    fuzzer, targets = _instrumented() if options.guided else (None, _targets())
    target = targets()[options.target]
    for example in target.examples():  # so that what is made once is made before memory is bounded
        target.check(example)
    with bounded():
        feeder = Feeder(target, Box(options.box), options.findings)
        if fuzzer is None:
            feed_mutations(target, feeder, options.inputs, options.seed)
        else:
            feed_guided(fuzzer, target, feeder, options.inputs, options.seed, options.box.parent)


def _targets() -> Callable[[], dict[str, Target]]:
    from tests.fuzz.targets import TARGETS

    return lambda: TARGETS


def _instrumented() -> tuple[Any, Callable[[], dict[str, Target]]]:
    """Our own packages, imported so that libFuzzer sees which lines are reached."""
    import atheris

    with atheris.instrument_imports(include=["shared", "gateway", "gpu_node"]):
        return atheris, _targets()


if __name__ == "__main__":
    main()
