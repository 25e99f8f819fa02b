"""Cases by the document, valid ones and broken ones; what an answer must hold to, whatever was asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from jsonschema import Draft202012Validator
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.edge.document import fetched, narrowed

_CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
"""Not that valid data are taken: what two fields say together, or a text's length in tokens, no schema can tell."""

_SHARES = {
    "/v1/chat/completions": 6,
    "/v1/completions": 6,
    "/v1/embeddings": 3,
    "/v1/rerank": 2,
    "/v2/rerank": 1,
    "/rerank": 1,
    "/v1/score": 2,
    "/score": 1,
    "/v1/classify": 2,
    "/classify": 1,
    "/v1/responses": 4,
    "/v1/conversations": 1,
    "/v1/conversations/{conversation}": 1,
    "/v1/conversations/{conversation}/items": 1,
    "/v1/responses/{response}": 1,
    "/v1/messages": 4,
    "/v1/messages/count_tokens": 2,
    "/tokenize": 3,
    "/detokenize": 2,
    "/v1/models/{name}": 2,
    "/v1/files": 1,
    "/v1/batches": 1,
    "/v1/messages/batches": 1,
}
"""Of all cases; the other paths take nothing from their clients, so they are asked once."""
_NAMED_EVENTS = {
    "/v1/responses": ["event: response.completed", "event: response.incomplete"],
    "/v1/messages": ["event: message_stop"],
}
"""Where events have names: those of the last one of a complete answer."""
_MAX_ROUNDS = 5
"""Hypothesis ends early where it has seen all that a small document allows: then it goes on with the next seed."""

_KINDS = [
    (0.4, GenerationMode.POSITIVE, True),
    (0.2, GenerationMode.POSITIVE, False),
    (0.4, GenerationMode.NEGATIVE, True),
]
"""Shares of cases that keep to the narrowed document, to the whole one, and that break a rule of it."""

_TIMEOUT_S = 20


@dataclass
class Found:
    """What a campaign saw."""

    num_cases: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """By path and status."""

    def of(self, path: str) -> dict[str, int]:
        """Those of one path."""
        return {name: number for name, number in self.statuses.items() if name.rpartition(" ")[0] == path}


def campaign(url: str, num_cases: int, first_seed: int) -> Found:
    """Send about ``num_cases`` requests; raises at the first answer that breaks a rule, with how to repeat it."""
    document = fetched(url)
    found = Found()
    with requests.Session() as session:
        send = _sender(url, session, document, found)
        for path, methods in document["paths"].items():
            num_here = num_cases * _SHARES.get(path, 0) // sum(_SHARES.values()) + 1
            for method, operation in methods.items():
                for share, strategy in _strategies(document, path, method, has_body="requestBody" in operation):
                    target = found.num_cases + int(num_here * share) + 1
                    for number in range(_MAX_ROUNDS):
                        if found.num_cases < target:
                            _run(strategy, send, target - found.num_cases, first_seed + number)
    return found


def _strategies(document: Any, path: str, method: str, *, has_body: bool) -> Iterator[tuple[float, Any]]:
    """Each with its share of the operation's cases."""
    for share, mode, is_narrow in _KINDS if has_body else [(1.0, GenerationMode.POSITIVE, False)]:
        copy = json.loads(json.dumps(document))
        schema = schemathesis.openapi.from_dict(narrowed(copy) if is_narrow else copy)
        yield share, schema[path][method.upper()].as_strategy(generation_mode=mode)


def _run(strategy: Any, send: Callable[[Case[Any]], None], num_cases: int, first_seed: int) -> None:
    @seed(first_seed)
    @settings(
        max_examples=num_cases,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(case: Case[Any]) -> None:
        send(case)

    run()


def _sender(
    url: str, session: requests.Session, document: Mapping[str, Any], found: Found
) -> Callable[[Case[Any]], None]:
    def send(case: Case[Any]) -> None:
        if case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE:
            case.body = _whole(case.body)
        answer = case.call(base_url=url, session=session, timeout=_TIMEOUT_S)
        found.num_cases += 1
        found.statuses[f"{case.path} {answer.status_code}"] += 1
        assert answer.headers.get("x-treadle-request-id"), "every answer has an id"
        if answer.headers.get("content-type", [""])[0].startswith("text/event-stream"):
            check_stream(document, case.path, answer)
        else:
            case.validate_response(answer, checks=_CHECKS)

    return send


def _whole(value: Any) -> Any:
    """1.0 as 1: an integer to JSON Schema, and none to a server that is strict about types."""
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_stream(document: Mapping[str, Any], path: str, answer: Response) -> None:
    """Every event is of its schema, and the last one says that the answer is complete."""
    assert answer.status_code == 200
    content = document["paths"][path]["post"]["responses"]["200"]["content"]
    validator = Draft202012Validator({**content["text/event-stream"]["schema"], "components": document["components"]})
    text = answer.content.decode()
    assert text.endswith("\n\n")
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    if path in _NAMED_EVENTS:
        names = [event.partition("\n")[0] for event in events]
        events = [event.partition("\n")[2] for event in events]
        assert names == [f"event: {json.loads(event.removeprefix('data: '))['type']}" for event in events]
        assert names[-1] in _NAMED_EVENTS[path]
    else:
        assert events.pop() == "data: [DONE]"
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    for event in events:
        validator.validate(json.loads(event.removeprefix("data: ")))
