"""vLLM's scheduler, telling of each step what it computed and how long it took. Runs in vLLM's own process.

Where KV is kept, it also lets requests leave with it: between two steps, behind all that they have brought.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from typing import Any

from gpu_node.vllm.inside.adapter_turns import NONE, closing, tokens_left
from gpu_node.vllm.inside.constrained import Constraining
from gpu_node.vllm.words.vllm_names import AsyncScheduler, RequestStatus, Scheduler, SchedulerOutput

REPORT = "treadle"
"""Under which the report of a step lies in a part of vLLM's statistics that is free here (`ec_connector_stats`)."""

KEEP = "+keep"
"""Behind the id of a request that is aborted, and is to leave with its KV."""


class _Measuring:
    """Of either scheduler; what it inherits comes behind it."""

    _sizes: dict[int, dict[str, Any]]
    _report: dict[str, Any] | None = None
    _ended_s = 0.0
    _leaving: tuple[str, ...] = ()
    """Those that leave when the step has ended."""
    lora_config: Any
    _closing = NONE
    _placeless: Any = None
    """The first request whose adapter waits for a place: behind it, none of the ``_closing`` one begins."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config: Any = self.vllm_config  # type: ignore[attr-defined]
        if config.lora_config is not None and config.device_config.device_type == "cpu":
            self.lora_config = copy.copy(config.lora_config)
            self.lora_config.max_loras -= 1  # see `gpu_node.vllm.inside.loaded_adapters.num_slots`

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        started_s = time.monotonic()
        if self.lora_config is not None:
            self._see_adapters()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        if "_sizes" not in self.__dict__:
            self._sizes = {}
        self._sizes[id(output)] = {"started_s": started_s} | self._size(output)
        return output

    def _see_adapters(self) -> None:
        """The first request that waits for a place of its adapter, and which place it gets."""
        running: list[Any] = self.running  # type: ignore[attr-defined]
        left = tokens_left((_adapter(one), one.max_tokens - one.num_output_tokens) for one in running)
        self._closing = closing(left, self.lora_config.max_loras)
        waiting: Any = self.waiting if self._closing != NONE else ()  # type: ignore[attr-defined]
        self._placeless = next((one for one in waiting if _adapter(one) not in (NONE, *left)), None)

    def _handle_blocked_waiting_request(self, request: Any) -> bool:
        """Whether a request may begin now; vLLM asks it of each that could."""
        may_begin: bool = super()._handle_blocked_waiting_request(request)  # type: ignore[misc]
        is_late = self._placeless is not None and self._placeless < request
        return may_begin and not (is_late and _adapter(request) == self._closing)

    def _size(self, output: SchedulerOutput) -> dict[str, Any]:
        """In the numbers of `gpu_node.engine.border.plan.StepPlan`; the rows count as computed already."""
        num_context = num_attended = 0
        requests: Any = self.requests  # type: ignore[attr-defined]
        for request_id, num_rows in output.num_scheduled_tokens.items():
            end = requests[request_id].num_computed_tokens
            num_context += end
            num_attended += num_rows * (end - num_rows) + num_rows * (num_rows + 1) // 2
        return {
            "rows": output.total_num_scheduled_tokens,
            "context": num_context,
            "attended": num_attended,
            "begun": [one.req_id for one in output.scheduled_new_reqs],
            "preempted": len(output.preempted_req_ids or ()),
        }

    def update_from_output(self, scheduler_output: SchedulerOutput, *args: Any, **kwargs: Any) -> Any:
        now_s = time.monotonic()
        size = self._sizes.pop(id(scheduler_output))
        size["seconds"] = now_s - max(size.pop("started_s"), self._ended_s)  # where steps overlap, from end to end
        self._ended_s, self._report = now_s, size
        outputs = super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
        leaving, self._leaving = self._leaving, ()
        self._let_go(leaving)
        return outputs

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: Any) -> Any:
        """vLLM hears of aborts within a step too; what the step computes of those that leave is to be told before."""
        if request_ids is None or isinstance(request_ids, str):
            return super().finish_requests(request_ids, finished_status)  # type: ignore[misc]
        ids = list(request_ids)
        leaving = [one.removesuffix(KEEP) for one in ids if one.endswith(KEEP)]
        if self.__dict__.get("_sizes"):
            self._leaving += tuple(leaving)
        else:
            self._let_go(leaving)
        return super().finish_requests([one for one in ids if not one.endswith(KEEP)], finished_status)  # type: ignore[misc]

    def _let_go(self, request_ids: Iterable[str]) -> None:
        here = [one for one in request_ids if one in self.requests and not self.requests[one].is_finished()]  # type: ignore[attr-defined]
        if here:
            self.connector.keep(here)  # type: ignore[attr-defined]
            super().finish_requests(here, RequestStatus.FINISHED_ABORTED)  # type: ignore[misc]

    def make_stats(self, *args: Any, **kwargs: Any) -> Any:
        stats = super().make_stats(*args, **kwargs)  # type: ignore[misc]
        if stats is not None and self._report is not None:
            kept = self.connector.take_kept() if self.connector is not None else {}  # type: ignore[attr-defined]
            stats.ec_connector_stats, self._report = {REPORT: self._report | {"kept": kept}}, None
        return stats


def _adapter(request: Any) -> int:
    return request.lora_request.lora_int_id if request.lora_request is not None else NONE


class StepScheduler(_Measuring, Constraining, Scheduler):  # type: ignore[misc]
    """One step after the other."""


class AsyncStepScheduler(_Measuring, Constraining, AsyncScheduler):  # type: ignore[misc]
    """A step is planned while one runs."""
