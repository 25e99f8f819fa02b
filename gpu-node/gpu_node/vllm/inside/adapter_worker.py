"""What vLLM's workers do for adapters that come: part of each of them, in their processes."""

from __future__ import annotations

from typing import Any

from gpu_node.vllm.words.reasons import one_line
from gpu_node.vllm.words.vllm_names import LoRARequest


class AdapterTaking:
    """vLLM makes it a base of its worker's class."""

    add_lora: Any

    def take_adapter(self, name: str, number: int, path: str) -> str:
        """Load an adapter; why it cannot be, or ``""``.

        Nothing is raised: behind the first worker that fails vLLM reads no answers of the others, and takes them for
        those of what it asks next.
        """
        try:
            self.add_lora(LoRARequest(name, number, path))
        except Exception as error:
            return one_line(str(error)) or type(error).__name__
        return ""
