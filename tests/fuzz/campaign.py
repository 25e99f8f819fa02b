"""Many inputs to one target, from a seed; what breaks a rule is kept, once for each place where it breaks."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from tests.fuzz.bounds import WIND_EVERY, timed, wind
from tests.fuzz.target import Target

FRESH_SHARE = 0.002
"""Of inputs that are an example as it is: they keep the decoder's good path under the eyes of the oracle."""


@dataclass(frozen=True)
class Finding:
    """An input that breaks a rule."""

    target: str
    data: bytes
    error: str
    """One line."""
    place: str
    """Where it was raised; findings with the same error at the same place are one."""

    @property
    def digest(self) -> str:
        """A short name for its input."""
        return hashlib.sha256(self.data).hexdigest()[:12]


@dataclass
class Tally:
    """What has come of a target's inputs."""

    num_inputs: int = 0
    num_decoded: int = 0
    """Inputs of which a value came out; the others were refused as documented."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """The first of each kind."""
    num_found: int = 0

    def feed(self, target: Target, data: bytes) -> Finding | None:
        """Check one input; a finding that is the first of its kind."""
        if self.num_inputs % WIND_EVERY == 0:
            wind()
        self.num_inputs += 1
        try:
            self.num_decoded += timed(target.check, data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of a library in Rust is no Exception
            self.num_found += 1
            finding = _finding(target, data, error)
            key = f"{finding.place} {type(error).__name__}"
            return self.findings.setdefault(key, finding) if key not in self.findings else None
        return None


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """Without end; the same for the same seed."""
    rng = Random(f"{target.name}:{seed}")
    corpus = list(target.examples())
    yield from corpus
    while True:
        example = rng.choice(corpus)
        yield example if rng.random() < FRESH_SHARE else target.mutate(example, corpus, rng)


def run(target: Target, data: Iterable[bytes], heard: Callable[[Tally], None] = lambda tally: None) -> Tally:
    """Feed all of ``data``; ``heard`` is called after each."""
    tally = Tally()
    for one in data:
        tally.feed(target, one)
        heard(tally)
    return tally


def _finding(target: Target, data: bytes, error: BaseException) -> Finding:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/fuzz/" not in frame.filename]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "oracle"
    text = str(error).encode(errors="backslashreplace").decode()
    return Finding(target.name, data, f"{type(error).__name__}: {text[:300]}", place)
