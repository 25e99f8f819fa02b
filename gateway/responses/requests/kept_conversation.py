"""One conversation of the Responses API as it is kept: what came before, what is asked now, what is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from gateway.inflight.kept_responses import KeptResponse, KeptResponses
from gateway.openai.requests.tools import CallArguments
from gateway.responses.answer import FunctionCallItem, OutputItem, ResponseAnswer
from gateway.responses.requests.items import InputItem

_ARGUMENTS: TypeAdapter[str] = TypeAdapter(CallArguments)
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


class KeptConversation:
    """Of one request."""

    def __init__(
        self, kept: KeptResponses, tenant: str, earlier: Sequence[dict[str, Any]], on_failure: Callable[[], None]
    ) -> None:
        """``earlier``: its items before this request. ``on_failure`` counts what could not be kept."""
        self._kept = kept
        self._tenant = tenant
        self._earlier = earlier
        self._on_failure = on_failure

    async def keep(self, given: Sequence[InputItem], answer: ResponseAnswer) -> None:
        """The whole of it, under the answer's id; of the calls in it those alone that a request may have, too."""
        number = answer.id.removeprefix("resp_")
        asked = [_written(item, f"{number}_i{place}") for place, item in enumerate(given)]
        said: list[dict[str, Any]] = msgspec.to_builtins([item for item in answer.output if _is_sendable(item)])
        response = KeptResponse(
            tenant=self._tenant,
            num_input=len(self._earlier) + len(asked),
            items=[*self._earlier, *asked, *said],
            answer=msgspec.Raw(msgspec.json.encode(answer)),
        )
        if not await self._kept.keep(answer.id, response):
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


def _written(item: InputItem, number: str) -> dict[str, Any]:
    """As its client may have sent it, with an id."""
    # parts are read by `one_of`, which pydantic takes for a union of what it has made objects already
    fields = item.model_dump(mode="json", exclude_none=True, warnings=False)
    return {"id": f"{_PREFIXES[item.type]}_{number}"} | fields
