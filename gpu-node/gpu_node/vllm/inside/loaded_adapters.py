"""The adapters that one running vLLM has: they come and go between its steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from gpu_node.vllm.words.adapters import MAX_HELD, CoreAdapter
from gpu_node.vllm.words.vllm_names import LoRARequest, SyncMPClient
from shared.config.engines.adapters import AdapterRoom

T = TypeVar("T")
Ask = Callable[[Callable[[], T]], T]
"""What vLLM answers; `gpu_node.vllm.words.border.CoreDiedError` where it dies meanwhile."""


def num_slots(room: AdapterRoom, *, is_cpu: bool) -> int:
    """Places that vLLM makes. On processors one more, which stays empty.

    vLLM's operators there take the last one's matrices for rows of the model itself, whose number is -1
    (`vllm.lora.ops.torch_ops`); those have to be zeros.
    """
    return room.num + is_cpu


def num_held(room: AdapterRoom, *, is_cpu: bool) -> int:
    """Adapters that vLLM may keep in host memory: it never has to read one again that it was told of."""
    return MAX_HELD + num_slots(room, is_cpu=is_cpu)


class LoadedAdapters:
    """Owns which there are. A number, and a name beside it, is given to vLLM once: its caches know blocks by the name,
    its workers matrices by the number, and what comes back under a name may be another file."""

    def __init__(self, client: SyncMPClient, ask: Ask[Any]) -> None:
        self._client = client
        self._ask = ask
        self._numbers = itertools.count(1)
        self._held: dict[str, tuple[CoreAdapter, LoRARequest]] = {}

    @property
    def held(self) -> tuple[CoreAdapter, ...]:
        """In the order in which they came."""
        return tuple(adapter for adapter, _ in self._held.values())

    def request(self, name: str) -> LoRARequest:
        """What vLLM is told with a request for one."""
        return self._held[name][1]

    def keep_last_empty(self, num: int, empty: Path) -> None:
        """Of ``num`` places, the last one holds ``empty`` from now on and changes nothing; there are no adapters yet.

        A new one gets the first place that is free.
        """
        numbers = []
        for _ in range(num):
            request, problem = self._add("empty", empty)
            assert not problem, problem
            numbers.append(request.lora_int_id)
        self._ask(lambda: self._client.pin_lora(numbers[-1]))
        for number in numbers[:-1]:
            self._remove(number)

    def exchange(self, wanted: Iterable[CoreAdapter]) -> dict[str, str]:
        """Have these and no others; by name, why vLLM does not take one.

        What is held under a name stays what it is. No request is for one that goes.
        """
        by_name = {one.name: one for one in wanted}
        for name in [one for one in self._held if one not in by_name]:
            _, request = self._held.pop(name)
            self._remove(request.lora_int_id)
        problems = {}
        for name, one in by_name.items():
            if name in self._held:
                continue
            if len(self._held) == MAX_HELD:
                problems[name] = f"adapter {name!r}: its model has {MAX_HELD} others here; remove some"
                continue
            request, problem = self._add(name, one.path)
            if problem:
                self._remove(request.lora_int_id)  # some of its workers, or of its matrices, may be there
                problems[name] = f"adapter {name!r}: vLLM does not take it: {problem}"
            else:
                self._held[name] = one, request
        return problems

    def _add(self, name: str, path: Path) -> tuple[LoRARequest, str]:
        """As it is called there, and why vLLM does not take it."""
        number = next(self._numbers)
        request = LoRARequest(f"{name}#{number}", number, str(path))
        told = request.lora_name, number, str(path)
        said: list[str] = self._ask(lambda: self._client.collective_rpc("take_adapter", args=told))
        return request, next(filter(None, said), "")

    def _remove(self, number: int) -> None:
        self._ask(lambda: self._client.remove_lora(number))
