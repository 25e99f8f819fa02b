import pytest

from services.batches.decisions.verdict import MAX_FAILURES, AnswerVerdict, verdict_of


@pytest.mark.parametrize(
    ("status", "num_failures", "verdict"),
    [
        (200, 0, AnswerVerdict.COMPLETED),
        (400, 0, AnswerVerdict.FAILED),
        (404, 0, AnswerVerdict.FAILED),
        (413, 0, AnswerVerdict.FAILED),
        (401, 0, AnswerVerdict.REVOKED),
        (408, 0, AnswerVerdict.REFUSED),
        (429, 100, AnswerVerdict.REFUSED),
        (502, 100, AnswerVerdict.REFUSED),
        (503, 100, AnswerVerdict.REFUSED),
        (500, 0, AnswerVerdict.RETRIED),
        (500, MAX_FAILURES - 2, AnswerVerdict.RETRIED),
        (500, MAX_FAILURES - 1, AnswerVerdict.FAILED),
    ],
)
def test_what_becomes_of_a_request(status: int, num_failures: int, verdict: AnswerVerdict) -> None:
    assert verdict_of(status, num_failures) is verdict
