import json

import msgspec
import pytest

from services.batches.records.answer_line import answer_line, read_numbers, unanswered_line
from shared.messages.batches.batch_lines import EXPIRED, AnswerBody

BATCH = "batch_" + "0" * 31 + "7"


def test_an_answer_as_openai_writes_it() -> None:
    answer = AnswerBody(200, "r-1", msgspec.Raw(b'{"id":"chatcmpl-1"}'))

    assert answer_line(BATCH, 3, "mine", answer) == (
        b'{"id":"batch_req_00000000000000000000000000000007_3","custom_id":"mine",'
        b'"response":{"status_code":200,"request_id":"r-1","body":{"id":"chatcmpl-1"}},"error":null}\n'
    )


def test_a_request_without_an_answer_says_why() -> None:
    line = json.loads(unanswered_line(BATCH, 4, 'a "name"\n', EXPIRED))

    assert line == {
        "id": "batch_req_00000000000000000000000000000007_4",
        "custom_id": 'a "name"\n',
        "response": None,
        "error": {
            "code": "batch_expired",
            "message": "this request could not be answered before the window of its batch was over",
        },
    }


def test_lines_tell_their_numbers() -> None:
    lines = [unanswered_line(BATCH, number, "x", EXPIRED) for number in (0, 17, 999_999)]

    assert list(read_numbers(lines)) == [0, 17, 999_999]


@pytest.mark.parametrize("line", [b"", b"{}\n", b'{"custom_id":"a","id":"batch_req_1_0"}\n'])
def test_another_line_is_none(line: bytes) -> None:
    with pytest.raises(ValueError, match="no line of a result file"):
        list(read_numbers([line]))
