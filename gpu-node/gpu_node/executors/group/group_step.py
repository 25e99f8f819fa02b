"""A step that several devices compute together, waited for no longer than all of them live.

A device whose neighbour has died waits in the middle of a step for a sum that never comes, and a thread that waits for
the step waits with it. So a thread waits for steps, and the engine looks after the neighbours meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from gpu_node.engine.border.executor import PendingStep
from gpu_node.engine.border.plan import StepResult

LOOK_S = 0.5
"""How often a waiting engine looks whether the others live."""


class StepWaiter:
    """Waits for steps in the order in which they were submitted, one at a time."""

    def __init__(self, look: Callable[[], None], look_s: float = LOOK_S) -> None:
        """``look`` raises where nothing is to be waited for any more."""
        self._look = look
        self._look_s = look_s
        self._steps: SimpleQueue[PendingStep] = SimpleQueue()  # never more than the one that `result` has put there
        self._results: SimpleQueue[StepResult | BaseException] = SimpleQueue()
        # a wait for a device cannot be ended, so the process ends without asking the thread
        threading.Thread(target=self._run, name="step-waiter", daemon=True).start()

    def result(self, step: PendingStep) -> StepResult:
        """What the step gives, or what it or ``look`` raises. Of no more use after the latter."""
        self._steps.put(step)
        while True:
            try:
                result = self._results.get(timeout=self._look_s)
            except Empty:
                self._look()
                continue
            if isinstance(result, BaseException):
                raise result
            return result

    def _run(self) -> None:
        while True:
            step = self._steps.get()
            try:
                self._results.put(step.result())
            except BaseException as error:
                self._results.put(error)


@dataclass(frozen=True, slots=True)
class GroupStep:
    """A step in the queues of all devices of a group."""

    own: PendingStep
    """This device's part, from which the result is told."""
    waiter: StepWaiter

    def result(self) -> StepResult:
        """Wait for it; raises as `StepWaiter.result` does."""
        return self.waiter.result(self.own)
