"""Calls that a request asks for, as a constraint that its answer is held to."""

from __future__ import annotations

from gateway.endpoints.constraint_check import check_built, check_constraint
from gateway.models.models import ServedModel
from gateway.openai.schema import ChatCompletionRequest
from gateway.openai.structured_output import schema_text
from gateway.tools.forced_calls import ForcedFunction, forced_calls
from shared.messages.payload import Constraint


async def forced_constraint(body: ChatCompletionRequest, model: ServedModel) -> Constraint:
    """Calls in the model's notation, of one function or of any; `ApiError` 400 names the function that cannot be."""
    functions = []
    names = {tool.function.name for tool in body.forced_tools}
    for number, tool in enumerate(body.tools):
        if tool.function.name in names:
            function = ForcedFunction(tool.function.name, tool.function.parameters)
            schema = Constraint("json_schema", schema_text(function.schema))
            await check_constraint(schema, f"tools[{number}].function.parameters")
            functions.append(function)
    constraint = forced_calls(model.notation, functions, model.control_markers, is_single=body.is_call_single)
    await check_built(constraint, "tools")
    return constraint
