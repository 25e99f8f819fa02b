"""How a core of vLLM and its workers wait for each other where processors compute."""

from __future__ import annotations

import inspect

from gpu_node.vllm.vllm_names import SpinCondition

SPINS = "busy_loop_s"


def wait_asleep() -> None:
    """From now on, in this process and its copies, whoever waits for a message sleeps until it comes.

    vLLM looks for it in a loop until nothing has come for a second, which spares a device some tenths of a millisecond
    a step. Where the step is computed by processors, the loop of the core takes one from its workers all the while.
    """
    parameters = inspect.signature(SpinCondition).parameters
    assert list(parameters)[-1] == SPINS, "vLLM waits in yet another way"
    SpinCondition.__init__.__defaults__ = (0.0,)
