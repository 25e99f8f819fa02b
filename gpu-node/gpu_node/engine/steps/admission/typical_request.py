"""What a typical request asks for, and how long its output becomes: learnt from those that come and end."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.forecast import RunningMean, expected_growth


class TypicalRequest:
    """Of one model. Before the first end, outputs are taken to use their limit."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._prompt_tokens = RunningMean()
        self._limit_tokens = RunningMean()
        self._output_tokens = RunningMean()

    def on_arrival(self, num_prompt_tokens: int, max_len: int) -> None:
        """Learn what a request asks for; ``max_len`` is the most that prompt and output come to together."""
        self._prompt_tokens.observe(num_prompt_tokens)
        self._limit_tokens.observe(max_len - 1 - num_prompt_tokens)

    def on_finish(self, num_output_tokens: int) -> None:
        """Learn how long an output has become."""
        self._output_tokens.observe(num_output_tokens)

    def mean_output_tokens(self, default: float) -> float:
        """Of those that have ended; ``default`` before the first."""
        return self._output_tokens.value(default)

    def growth(self, num_tokens: int, num_prompt_tokens: int, max_len: int) -> int:
        """Tokens that a sequence with so many known ones is expected to be computed for yet.

        The last token drawn is never computed.
        """
        num_limit_tokens = max_len - 1
        mean_tokens = self.mean_output_tokens(default=num_limit_tokens)
        return expected_growth(num_tokens - num_prompt_tokens, mean_tokens, num_limit_tokens - num_tokens)

    @property
    def num_prompt_blocks(self) -> int:
        """KV blocks that its prompt takes."""
        prompt_tokens = self._prompt_tokens.value(default=self._model.max_model_len)
        return max(1, -(-round(prompt_tokens) // self._model.block_size))

    @property
    def num_blocks(self) -> int:
        """KV blocks that it holds at its end."""
        prompt_tokens = self._prompt_tokens.value(default=self._model.max_model_len)
        output_tokens = self.mean_output_tokens(default=self._limit_tokens.value(default=0))
        num_tokens = min(round(prompt_tokens + output_tokens), self._model.max_model_len)
        return max(1, -(-num_tokens // self._model.block_size))
