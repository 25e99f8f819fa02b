"""The answer to a request before anything of it is known: what it asked for, as it is told again."""

from __future__ import annotations

from typing import Any

from gateway.responses.answer import ResponseAnswer
from gateway.responses.requests.options import FunctionTool, TextFormat
from gateway.responses.requests.request import ResponsesRequest


def blank_answer(body: ResponsesRequest, response_id: str, created: int) -> ResponseAnswer:
    """In progress, with no output yet."""
    choice = body.tool_choice
    return ResponseAnswer(
        id=response_id,
        created_at=created,
        status="in_progress",
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        metadata=body.metadata or {},
        model=body.model,
        output=[],
        parallel_tool_calls=body.parallel_tool_calls,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning={"effort": body.reasoning.effort if body.reasoning is not None else None, "summary": None},
        safety_identifier=body.safety_identifier,
        store=body.conversation is not None,
        temperature=body.temperature,
        text={"format": _format(body.text.format if body.text is not None else None), "verbosity": "medium"},
        tool_choice="auto" if choice is None else choice.told(),
        tools=[_tool(tool) for tool in body.tools],
        top_logprobs=body.top_logprobs,
        top_p=body.top_p,
        user=body.user,
    )


def _format(given: TextFormat | None) -> dict[str, Any]:
    if given is None or given.schema_ is None:
        return {"type": "text" if given is None else given.type}
    return {
        "type": given.type,
        "name": given.name,
        "description": given.description,
        "schema": given.schema_,
        "strict": True,
    }


def _tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }
