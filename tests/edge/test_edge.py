"""2,000 requests by the gateway's own document: no 500, no status and no answer that the document does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import ValidationError
from schemathesis.core.transport import Response

from tests.edge.cases import campaign, check_stream
from tests.edge.document import fetched
from tests.edge.server import serving

NUM_CASES = 2000
SEED = 18
BODIES = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"]
BODIES += ["/v1/conversations", "/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/detokenize"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("edge"), redis_url) as url:
        yield url


def test_answers_are_what_the_document_says(url: str) -> None:
    found = campaign(url, NUM_CASES, SEED)
    assert found.num_cases >= NUM_CASES
    for path in BODIES:
        answered, all_ = found.statuses[f"{path} 200"], sum(found.of(path).values())
        assert answered > 0.1 * all_, "cases reach more than the first check"
        assert found.statuses[f"{path} 400"] > 0


def test_a_campaign_notices_what_the_document_does_not_have(url: str) -> None:
    document = fetched(url)
    answer = _answer('data: {"id": 5}\n\ndata: [DONE]\n\n')
    with pytest.raises(ValidationError):
        check_stream(document, "/v1/completions", answer)
    with pytest.raises(AssertionError):
        check_stream(document, "/v1/completions", _answer("data: {}\n\n"))
    with pytest.raises(AssertionError):
        check_stream(document, "/v1/responses", _answer('event: error\ndata: {"type": "error"}\n\n'))

    with pytest.raises(AssertionError):
        check_stream(document, "/v1/messages", _answer('event: message_start\ndata: {"type": "message_start"}\n\n'))


def _answer(text: str) -> Response:
    kept: Any = {"content-type": ["text/event-stream"]}
    return Response(200, kept, text.encode(), None, 0.0, True)  # type: ignore[arg-type]
