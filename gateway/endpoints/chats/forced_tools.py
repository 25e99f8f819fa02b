"""Calls that a request asks for, as a constraint that its answer is held to."""

from __future__ import annotations

import asyncio

from gateway.endpoints.call.constraint_check import build_problem, check_constraint
from gateway.models.models import ServedModel
from gateway.openai.errors import errors
from gateway.openai.requests.schema import ChatCompletionRequest
from gateway.openai.requests.structured_output import schema_text
from gateway.tenants.turn_threads import TenantThreads
from gateway.tools.forced_calls import ForcedFunction, forced_calls
from shared.messages.requests.payload import Constraint

NAMING_S = 0.5  # to find the function that is at fault: many hostile ones would take a thread for half a minute


async def forced_constraint(body: ChatCompletionRequest, model: ServedModel, threads: TenantThreads) -> Constraint:
    """Calls in the model's notation, of one function or of any; `ApiError` 400 names the function that cannot be.

    All of them together are built first: their sum is bounded by that, so looking at each of them is, too.
    """
    functions = {f"tools[{number}]": _forced(body, number) for number in _forced_numbers(body)}
    constraint = forced_calls(
        model.notation, list(functions.values()), model.control_markers, is_single=body.is_call_single
    )
    problem = await build_problem(constraint, threads)
    clock = asyncio.get_running_loop().time
    until = clock() + NAMING_S
    for field, function in functions.items():
        if problem and clock() > until:
            break
        of_function = Constraint("json_schema", schema_text(function.schema))
        await check_constraint(of_function, f"{field}.function.parameters", threads)
    if problem:
        raise errors.no_grammar(problem, "tools")
    return constraint


def _forced_numbers(body: ChatCompletionRequest) -> list[int]:
    names = {tool.function.name for tool in body.forced_tools}
    return [number for number, tool in enumerate(body.tools) if tool.function.name in names]


def _forced(body: ChatCompletionRequest, number: int) -> ForcedFunction:
    function = body.tools[number].function
    return ForcedFunction(function.name, function.parameters)
