import json
from typing import Any

from services.batches.records.usage import usage_of
from shared.messages.batches.batches import BatchUsage


def line(**body: Any) -> bytes:
    return json.dumps({"id": "x", "response": {"status_code": 200, "body": body}}).encode()


def test_tokens_of_every_api_are_summed() -> None:
    chat = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    responses = {
        "input_tokens": 100,
        "output_tokens": 50,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens_details": {"reasoning_tokens": 20},
    }
    messages: dict[str, Any] = {"input_tokens": 600, "output_tokens": 500, "cache_read_input_tokens": 400}
    messages |= {"output_tokens_details": {"thinking_tokens": 200}}

    found = usage_of([line(usage=chat), line(usage=responses), line(usage=messages), line(usage=None), line()])

    assert found == BatchUsage(input_tokens=1110, output_tokens=555, cached_tokens=444, reasoning_tokens=222)
