"""The engines that structured_output.py asks by turns: ours in this process, vLLM in one of its own."""

from __future__ import annotations

import json
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from engine_vs_vllm import end_session, plain_environment, tuned_settings

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.grammars.compiler import GrammarCompiler
from gpu_node.models.hf.export import export_model
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import checked_path
from shared.messages.requests.payload import Constraint, Payload, Sampling

MAX_MODEL_LEN = 1024
LOAD_TIMEOUT_S = 300.0
BATCH_TIMEOUT_S = 120.0
NUM_LAST_LINES = 20

SPEC = ModelSpec(name="m", source=SMOLLM2_SOURCE, sha256=SMOLLM2_SHA256, max_model_len=MAX_MODEL_LEN)


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that begin together, greedy, each to its last token."""

    prompts: Sequence[Sequence[int]]
    schemas: Sequence[str | None]
    """The JSON schema that each is held to; None: free."""
    num_tokens: int


class TimedEngine(Protocol):
    """Has the model loaded."""

    settle_s: float
    """How long its threads look for more work after the last token, on cores that another engine may need."""

    def seconds(self, batch: Batch) -> float:
        """Until each request has had its last token."""
        ...


class Ours:
    """The engine on the CPU device. The gateway's check of a schema is no part of it."""

    settle_s = 0.1  # its threads look for work for well under a millisecond, then sleep

    def __init__(self, num_threads: int, max_num_seqs: int) -> None:
        options = EngineOptions(max_num_seqs=max_num_seqs, kv_cache_bytes=512 << 20)
        self.grammars = GrammarCompiler(lambda _: checked_path(SPEC))
        self._engine = Engine(CpuExecutor(options, num_threads=num_threads), options, grammars=self.grammars)
        self._engine.load_model(SPEC)
        self._num_batches = 0

    def seconds(self, batch: Batch) -> float:
        """As `TimedEngine.seconds`."""
        self._num_batches += 1
        payloads = [
            self._payload(f"{self._num_batches}-{number}", prompt, schema, batch.num_tokens)
            for number, (prompt, schema) in enumerate(zip(batch.prompts, batch.schemas, strict=True))
        ]
        num_tokens = 0
        started_s = time.perf_counter()
        for payload in payloads:
            assert self._engine.add(payload) == []
        while self._engine.has_work:
            num_tokens += sum(len(chunk.token_ids) for chunk in self._engine.step(time.monotonic()))
        seconds = time.perf_counter() - started_s
        assert num_tokens == len(payloads) * batch.num_tokens, "each runs to its last token"
        return seconds

    def _payload(self, name: str, prompt: Sequence[int], schema: str | None, num_tokens: int) -> Payload:
        form = None if schema is None else Constraint("json_schema", schema)
        sampling = Sampling(max_tokens=num_tokens, temperature=0.0, ignore_eos=True, constraint=form)
        return Payload(name, 0, "bench", SPEC.name, list(prompt), sampling)


class PeerError(Exception):
    """The peer ended, or did not answer; with the last lines it wrote."""


class Peer:
    """vLLM for processors: one JSON line a batch, one JSON line an answer (vllm_structured.py)."""

    settle_s = 1.2  # its worker reads shared memory in a loop for 1 s, then waits

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        """``process`` has begun; ``errors`` is where it writes what else it has to say."""
        self._process = process
        self._errors = errors
        self.about = self._answer(LOAD_TIMEOUT_S)
        """Its version."""
        self.backends: set[str] = set()
        """Which it took for schemas."""

    def seconds(self, batch: Batch) -> float:
        """As `TimedEngine.seconds`. Raises `PeerError`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(batch)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._error("has ended") from error
        answer = self._answer(BATCH_TIMEOUT_S)
        assert answer["num_tokens"] == [batch.num_tokens] * len(batch.prompts), "each runs to its last token"
        self.backends.update(answer["backends"])
        return float(answer["seconds"])

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], timeout_s)[0]:
            raise self._error(f"did not answer for {timeout_s:.0f} s")
        line = out.readline()
        if not line:
            raise self._error("has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _error(self, problem: str) -> PeerError:
        last = self._errors.read_text(errors="replace").splitlines()[-NUM_LAST_LINES:]
        return PeerError("\n".join([f"vLLM {problem}", *last]))


@contextmanager
def peer(environment: Path, num_threads: int, max_num_seqs: int) -> Iterator[Peer]:
    """vLLM in the virtual ``environment`` that peer.sh makes, on these cores, with our weights in bfloat16."""
    with tempfile.TemporaryDirectory(prefix="treadle-peer-") as folder:
        model, errors = Path(folder, "model"), Path(folder, "errors")
        model.mkdir()
        export_model(checked_path(SPEC), model)
        script = Path(__file__).with_name("vllm_structured.py")
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [environment / "bin/python", script, model, str(MAX_MODEL_LEN), str(max_num_seqs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=plain_environment() | tuned_settings(environment, num_threads),
                start_new_session=True,
            )
        try:
            yield Peer(process, errors)
        finally:
            end_session(process)
