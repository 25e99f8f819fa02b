"""One line out of what vLLM says in many."""

from __future__ import annotations

import pytest

from gpu_node.vllm.words.reasons import first_error, one_line

LOG = """\
ERROR vllm.v1.executor.multiproc_executor: WorkerProc failed to start.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise ValueError(text)
ValueError: Available memory is less than requested
memory for kv.
ERROR vllm.v1.engine.core: EngineCore failed to start.
Traceback (most recent call last):
  File "core.py", line 2, in main
    raise Exception("WorkerProc initialization failed")
Exception: WorkerProc initialization failed
"""


def test_the_first_error_of_a_log_is_the_cause() -> None:
    assert first_error(LOG) == "Available memory is less than requested memory for kv."


def test_a_log_without_a_traceback_has_none() -> None:
    assert first_error("ERROR vllm.x: something\nValueError: not raised\n") == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n b\n\nmore about it", "a b"),
        (
            "1 validation error for ModelConfig\n  Value error, no such type. [type=value_error, input_value=...]\n"
            "    For further information visit https://errors.pydantic.dev",
            "no such type.",
        ),
        ("x" * 1000, "x" * 500),
    ],
)
def test_messages(text: str, line: str) -> None:
    assert one_line(text) == line
