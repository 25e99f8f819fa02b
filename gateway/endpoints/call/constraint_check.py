"""A constraint is checked before anything is queued: what is wrong with one, its client is told at once.

Its grammar is built for that, which takes up to some 100 ms for a hostile one, without the GIL: always on a thread, and
on few of them, so that such constraints wait for each other and not for all cores.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from gateway.openai.errors import errors
from gateway.openai.requests.schema import GenerationRequest
from shared.grammars.problem import build_problem_of, problem_of
from shared.messages.requests.payload import Constraint

NUM_THREADS = 2
MAX_KNOWN = 64  # constraints: programs send the same one again and again

_threads = ThreadPoolExecutor(NUM_THREADS, "grammars")
_known_problem_of = lru_cache(MAX_KNOWN)(problem_of)
_known_build_problem_of = lru_cache(MAX_KNOWN)(build_problem_of)


async def checked_constraint(body: GenerationRequest) -> Constraint | None:
    """What the answer has to be by the request's own words; `ApiError` 400 for what it cannot."""
    constraint = body.constraint
    if constraint is not None:
        await check_constraint(constraint, body.constraint_param)
    return constraint


async def build_problem(constraint: Constraint) -> str:
    """Why a constraint of our own making cannot be built; ``""`` when it can."""
    return await asyncio.get_running_loop().run_in_executor(_threads, _known_build_problem_of, constraint)


async def check_constraint(constraint: Constraint, param: str) -> None:
    """`ApiError` 400, about the field ``param``, for a constraint that no output can be held to."""
    problem = await asyncio.get_running_loop().run_in_executor(_threads, _known_problem_of, constraint)
    if problem:
        raise errors.no_grammar(problem, param)
