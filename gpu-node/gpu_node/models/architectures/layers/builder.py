"""Puts a program together: buffers and weights are declared where an operator first writes or uses them."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_node.graph.program import POSITIONS, TOKEN_IDS, Buffer, Operator, OperatorKind, Program, Rows
from gpu_node.graph.weight import Weight
from gpu_node.models.config import ModelConfig


class ProgramBuilder:
    """The program of ``config`` as it grows. Buffers are named by what they hold and used again in every layer."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._operators: list[Operator] = []
        self._buffers: dict[str, Buffer] = {}
        self._weights: dict[str, Weight] = {}

    def add(
        self,
        kind: OperatorKind,
        inputs: Sequence[str],
        output: str | None = None,
        weights: Sequence[Weight] = (),
        *,
        columns: int | None = None,
        rows: Rows | None = None,
        layer: int | None = None,
        **attributes: int | float,
    ) -> None:
        """Append an operator. ``output`` is as wide as the first input, and has its rows, unless said otherwise."""
        if output is not None:
            first = self._buffers.get(inputs[0])
            if columns is None:
                assert first is not None, f"{kind}: say how wide {output} is"
                columns = first.num_columns
            buffer = Buffer(output, columns, rows or (first.rows if first else Rows.TOKENS))
            assert self._buffers.setdefault(output, buffer) == buffer, f"{output} changes its shape"
        for weight in weights:
            assert self._weights.setdefault(weight.name, weight) == weight, f"{weight.name} changes its shape"
        names = tuple(weight.name for weight in weights)
        outputs = () if output is None else (output,)
        self._operators.append(Operator(kind, tuple(inputs), outputs, names, layer, attributes))

    def linear(self, source: str, target: str, weight: str, columns: int, *, bias: bool = False) -> None:
        """``target`` = ``source`` times a weight [columns, columns of source] transposed, plus ``weight``_bias."""
        matrix = Weight(weight, (columns, self._buffers[source].num_columns))
        if bias:
            parameters = [matrix, Weight(f"{weight}_bias", (columns,))]
            self.add(OperatorKind.LINEAR_BIAS, (source,), target, parameters, columns=columns)
        else:
            self.add(OperatorKind.LINEAR, (source,), target, [matrix], columns=columns)

    def rms_norm(self, source: str, target: str, weight: str) -> None:
        """``target`` = ``source`` divided by its root mean square, times a weight."""
        parameters = [Weight(weight, (self._buffers[source].num_columns,))]
        self.add(OperatorKind.RMS_NORM, (source,), target, parameters, epsilon=self.config.norm_epsilon)

    def layer_norm(self, source: str, target: str, weight: str, *, bias: bool = True) -> None:
        """``target`` = ``source`` with mean 0 and variance 1, times a weight, plus ``weight``_bias."""
        shape = (self._buffers[source].num_columns,)
        parameters = [Weight(name, shape) for name in (weight, f"{weight}_bias")[: 1 + bias]]
        self.add(OperatorKind.LAYER_NORM, (source,), target, parameters, epsilon=self.config.norm_epsilon)

    def embedding(self) -> None:
        """``hidden`` = rows of the embedding for the batch's token ids."""
        config = self.config
        table = Weight("embedding", (config.vocab_size, config.hidden_size))
        self.add(OperatorKind.EMBEDDING, (TOKEN_IDS,), "hidden", [table], columns=config.hidden_size)

    def learned_positions(self) -> None:
        """Add a learned row for each position to ``hidden``."""
        config = self.config
        table = Weight("position_embedding", (config.context_length, config.hidden_size))
        self.add(OperatorKind.EMBEDDING, (POSITIONS,), "position", [table], columns=config.hidden_size)
        self.add(OperatorKind.ADD, ("hidden", "position"), "hidden")

    def lm_head(self) -> None:
        """``logits`` of ``drawn_normed``, with the embedding itself where it is tied."""
        weight = "embedding" if self.config.tied_embedding else "lm_head"
        self.linear("drawn_normed", "logits", weight, self.config.vocab_size)

    def program(self, result: str = "logits") -> Program:
        """The finished program."""
        return Program(tuple(self._operators), tuple(self._buffers.values()), tuple(self._weights.values()), result)
