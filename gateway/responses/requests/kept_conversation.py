"""One conversation of the Responses API as it is kept: what came before, what is asked now, what is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from gateway.inflight.kept_responses import KeptResponse, KeptResponses
from gateway.kept.held_conversation import HeldConversation
from gateway.openai.requests.tools import CallArguments
from gateway.responses.answer import FunctionCallItem, OutputItem, ResponseAnswer
from gateway.responses.requests.items import InputItem

_ARGUMENTS: TypeAdapter[str] = TypeAdapter(CallArguments)
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


class KeptConversation:
    """Of one request."""

    def __init__(
        self,
        kept: KeptResponses | None,
        tenant: str,
        earlier: Sequence[dict[str, Any]],
        on_failure: Callable[[], None],
        held: HeldConversation | None = None,
    ) -> None:
        """``kept``: where the answer is kept, if it is. ``earlier``: items before this request.

        ``held``: the conversation that these are of. ``on_failure`` counts what could not be kept.
        """
        self._kept = kept
        self._tenant = tenant
        self.earlier = earlier
        self._on_failure = on_failure
        self.held = held

    @property
    def keeps_answers(self) -> bool:
        """Whether the answer is found by its id."""
        return self._kept is not None

    def written(self, given: Sequence[InputItem], answer: ResponseAnswer) -> KeptResponse:
        """The whole of it; of the calls in it those alone that a request may have, too, and of what failed nothing."""
        number = answer.id.removeprefix("resp_")
        said: list[dict[str, Any]] = []
        if answer.status in ("completed", "incomplete"):
            said = msgspec.to_builtins([item for item in answer.output if _is_sendable(item)])
        asked = [written_item(item, f"{number}_i{place}") for place, item in enumerate(given)]
        return KeptResponse(
            tenant=self._tenant,
            num_input=len(self.earlier) + len(asked),
            items=[*self.earlier, *asked, *said],
            answer=msgspec.Raw(msgspec.json.encode(answer)),
        )

    async def keep(self, given: Sequence[InputItem], answer: ResponseAnswer) -> None:
        """All of it, under the answer's id; and what is new of it in its conversation, which is free then."""
        response = self.written(given, answer)
        if self.held is not None:
            await self.continue_conversation(self.held, response, answer.id)
        if self._kept is not None and not await self._kept.keep(answer.id, response):
            self._on_failure()
        if self.held is not None:
            await self.held.unlock()

    async def continue_conversation(self, held: HeldConversation, response: KeptResponse, answer_id: str) -> None:
        """What is new of it becomes part of the conversation, under ids of its own."""
        number = answer_id.removeprefix("resp_")
        new = response.items[len(self.earlier) :]
        num_asked = response.num_input - len(self.earlier)
        asked = [renamed(item, f"{number}_i{place}") for place, item in enumerate(new[:num_asked])]
        if not await held.add([*asked, *new[num_asked:]]):
            self._on_failure()


def _is_sendable(item: OutputItem) -> bool:
    """Not a call that the answer's end has cut, nor one whose arguments are no JSON object that is taken."""
    if not isinstance(item, FunctionCallItem):
        return True
    try:
        _ARGUMENTS.validate_python(item.arguments)
    except ValidationError:
        return False
    return True


def written_item(item: InputItem, number: str) -> dict[str, Any]:
    """As its client may have sent it, with an id."""
    # parts are read by `one_of`, which pydantic takes for a union of what it has made objects already
    fields = item.model_dump(mode="json", exclude_none=True, warnings=False)
    return {"id": f"{_PREFIXES[item.type]}_{number}"} | fields


def renamed(item: dict[str, Any], number: str) -> dict[str, Any]:
    """An item as conversations have it: with an id that no other one has, and whole."""
    return {"status": "completed"} | item | {"id": f"{_PREFIXES[item['type']]}_{number}"}
