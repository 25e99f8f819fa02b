"""A constraint is checked before anything is queued: what is wrong with one, its client is told at once.

Its grammar is built for that, which takes up to some 100 ms for a hostile one, without the GIL: always on a thread
(`gateway.tenants.turn_threads`).
"""

from __future__ import annotations

from functools import lru_cache, partial

from gateway.openai.errors import errors
from gateway.openai.requests.schema import GenerationRequest
from gateway.tenants.turn_threads import TenantThreads
from shared.grammars.problem import build_problem_of, problem_of
from shared.messages.requests.payload import Constraint

MAX_KNOWN = 64  # constraints: programs send the same one again and again

_known_problem_of = lru_cache(MAX_KNOWN)(problem_of)
_known_build_problem_of = lru_cache(MAX_KNOWN)(build_problem_of)


async def checked_constraint(body: GenerationRequest, threads: TenantThreads) -> Constraint | None:
    """What the answer has to be by the request's own words; `ApiError` 400 for what it cannot."""
    constraint = body.constraint
    if constraint is not None:
        await check_constraint(constraint, body.constraint_param, threads)
    return constraint


async def build_problem(constraint: Constraint, threads: TenantThreads) -> str:
    """Why a constraint of our own making cannot be built; ``""`` when it can."""
    return await threads.run_grammar(partial(_known_build_problem_of, constraint))


async def check_constraint(constraint: Constraint, param: str, threads: TenantThreads) -> None:
    """`ApiError` 400, about the field ``param``, for a constraint that no output can be held to."""
    problem = await threads.run_grammar(partial(_known_problem_of, constraint))
    if problem:
        raise errors.no_grammar(problem, param)
