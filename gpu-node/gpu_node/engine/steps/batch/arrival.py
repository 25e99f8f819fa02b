"""A request comes to an engine: refused, complete already, or to be queued."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_node.engine.border.grammar import Grammar
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.choices import end_chunks, error_chunk, refusal_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.ends import finish_reason
from gpu_node.engine.requests.image import RequestState
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.batch.limits import NO_GRAMMARS, refusal
from gpu_node.engine.steps.batch.resumption import resumed
from gpu_node.engine.steps.batch.rows import num_tops
from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Payload


class Arrival:
    """What becomes of newcomers of one model, each with a number of its own for its sequences."""

    def __init__(
        self, model: LoadedModel, options: EngineOptions, sequence_ids: Iterator[int], *, has_late_masks: bool
    ) -> None:
        """With ``has_late_masks``, constrained sequences go on behind tokens that are not known yet."""
        self._model = model
        self._options = options
        self._sequence_ids = sequence_ids
        self._has_late_masks = has_late_masks
        self._num_arrived = 0

    def renew(self, model: LoadedModel) -> None:
        """It has other adapters from now on; all else of it is what it was."""
        self._model = model

    def take(
        self, payload: Payload, state: RequestState | None, grammar: Grammar | None
    ) -> tuple[EngineRequest | None, list[OutputChunk]]:
        """The request to be queued, or None; and what ends at once. With a ``state``, it goes on from there."""
        problem = NO_GRAMMARS if grammar is None else grammar.problem
        if error := refusal(payload, self._model, self._options, problem):
            return None, [refusal_chunk(payload, error)]
        numbers = self._num_arrived, self._sequence_ids, self._model.max_model_len
        self._num_arrived += 1
        request = EngineRequest.of(payload, *numbers) if state is None else resumed(state, payload, *numbers)
        request.adapter = self._model.number_of(payload.adapter)
        request.num_top = num_tops(payload.sampling, self._model)
        if grammar is not None and (error := request.constrain(grammar, awaits_draws=not self._has_late_masks)):
            return None, [error_chunk(payload, error)]
        if state is not None:
            return request, []
        reasons = [finish_reason(sequence, payload.sampling, self._model) for sequence in request.sequences]
        chunks = end_chunks(payload, request.sequences, reasons)
        request.sequences = [one for one, reason in zip(request.sequences, reasons, strict=True) if not reason]
        return request if request.sequences else None, chunks
