"""What the fast engine can do: plain requests, with the options that change nothing else. All else it refuses.

An option or a field of `Sampling` that is new is refused too, where it is not as it is by default, until it is named
here.
"""

from __future__ import annotations

from dataclasses import Field, fields

from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Payload

ADVICE = "run with the live bookkeeping: `treadle sim run --engine stepped`, `make_engine=stepped` in code"

OPTIONS = frozenset(
    {
        "block_size",
        "kv_cache_bytes",
        "max_num_seqs",
        "step_tokens",
        "evicted_kv_bytes",
        "host_models",
        "device_memory_share",  # of real devices, like the time-out
        "step_timeout_s",
        "host_kv_bytes",
        "preemption",
        "overlap_swaps",
        "lazy_swaps",
        "async_scheduling",
        "structured_guesses",  # which simulated devices do not check
    }
)
"""Options of an engine that may have any value, within `refused_options`."""

SAMPLING = frozenset(
    {
        "max_tokens",
        "seed",
        "is_seeded",
        "temperature",  # this one and the next say which tokens are drawn, and not how many
        "top_k",
        "top_p",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "length_penalty",  # of candidates, which are refused
    }
)
"""Fields of `Sampling` that may have any value."""


class FastEngineError(ValueError):
    """The fast engine cannot do what is asked of it; the text says what that is, and what to do."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"the fast engine of simulations does not know {'; '.join(problems)}: {ADVICE}")


def check_options(options: EngineOptions) -> None:
    """Raises `FastEngineError` with all that it cannot do of them."""
    problems = _unknown(options, fields(options), OPTIONS)
    if options.preemption == "swap_only":  # which admits by host memory, not by the predicted peak alone
        problems.append("preemption 'swap_only'")
    if options.async_scheduling:
        problems.append("steps that are planned while others run (async_scheduling)")
    if options.step_tokens < options.max_num_seqs:
        problems.append(f"batches of {options.max_num_seqs} that do not decode in one step of {options.step_tokens}")
    if problems:
        raise FastEngineError(problems)


def check_request(payload: Payload) -> None:
    """Raises `FastEngineError` for a request that is not plain."""
    problems = _unknown(payload.sampling, fields(payload.sampling), SAMPLING)
    if problems:
        raise FastEngineError([f"request {payload.request_id} with {problem}" for problem in problems])


def _unknown(values: object, known: tuple[Field[object], ...], served: frozenset[str]) -> list[str]:
    """Those fields of ``values`` that are not served, and not as they are by default."""
    others = [one for one in known if one.name not in served]
    return [f"{one.name} {getattr(values, one.name)!r}" for one in others if getattr(values, one.name) != _default(one)]


def _default(field: Field[object]) -> object:
    return field.default_factory() if callable(field.default_factory) else field.default
