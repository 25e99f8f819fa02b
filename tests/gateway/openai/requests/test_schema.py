from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.http.body import parse_body
from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.schema import INERT, ChatCompletionRequest, CompletionRequest, GenerationRequest

USER = {"role": "user", "content": "hi"}
CHAT = {"model": "tiny", "messages": [USER]}
TEXT = {"model": "tiny", "prompt": "hi"}


def chat(**fields: Any) -> ChatCompletionRequest:
    return parse_body(msgspec.json.encode(CHAT | fields), ChatCompletionRequest)


def completion(**fields: Any) -> CompletionRequest:
    return parse_body(msgspec.json.encode(TEXT | fields), CompletionRequest)


def refusal(fields: dict[str, Any], model: type[GenerationRequest] = ChatCompletionRequest) -> ApiError:
    base = CHAT if model is ChatCompletionRequest else TEXT
    with pytest.raises(ApiError) as error:
        parse_body(msgspec.json.encode(base | fields), model)
    assert error.value.status == 400
    return error.value


def test_defaults_are_those_of_openai() -> None:
    body = chat()
    assert (body.temperature, body.top_p, body.top_k, body.min_p, body.stop) == (1.0, 1.0, 0, 0.0, [])
    assert (body.max_tokens, body.seed, body.stream, body.include_usage, body.slo) == (None, None, False, False, None)


def test_null_means_not_given() -> None:
    nulls: dict[str, Any] = dict.fromkeys(["max_tokens", "temperature", "stop", "seed", "stream", "slo", "n", "tools"])
    assert chat(**nulls) == chat()
    message = USER | {"name": None, "tool_calls": None}
    assert chat(messages=[message]) == chat()


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat(messages=[{"role": "user", "content": parts}]).messages[0].content == "ab"


@pytest.mark.parametrize(
    ("prompt", "parsed"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ([], [[]]),
    ],
)
def test_prompts_are_texts_or_token_ids(prompt: Any, parsed: Any) -> None:
    assert completion(prompt=prompt).prompt == parsed


def test_a_stop_string_may_stand_alone() -> None:
    assert chat(stop="x").stop == ["x"]
    assert len(chat(stop=["x"] * 16).stop) == 16


def test_an_slo_is_a_name_or_numbers() -> None:
    named, numbers = chat(slo="batch-1").slo, chat(slo={"ttft_s": 1, "tpot_s": None}).slo
    assert named is not None
    assert named.class_name == "batch-1"
    assert numbers is not None
    assert (numbers.class_name, numbers.ttft_s, numbers.tpot_s) == (None, 1.0, None)


def test_what_changes_nothing_is_taken() -> None:
    chat(user="u", metadata={"a": "b"}, store=True, parallel_tool_calls=False)
    for name, values in INERT.items():
        for value in values:
            chat(**{name: value})


@pytest.mark.parametrize(
    ("field", "value"), [("functions", [{"name": "f"}]), ("suffix", "x"), ("service_tier", "flex")]
)
def test_what_is_not_supported_yet_is_refused_by_name(field: str, value: Any) -> None:
    for model in (ChatCompletionRequest, CompletionRequest):
        error = refusal({field: value}, model)
        assert (error.param, error.code) == (field, "unsupported_parameter")
        assert error.message == f"'{field}' is not supported yet"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "0.5"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"seed": 1 << 63}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"model": 5}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:"}]}]},
            "messages[0].content[0].image_url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5}}]}]},
            "messages[0].content[0].image_url.url",
        ),
        ({"slo": 5}, "slo"),
        ({"slo": {}}, "slo"),
        ({"slo": {"ttft_s": 0}}, "slo.ttft_s"),
        ({"slo": {"ttft_s": 5e-324}}, "slo.ttft_s"),
        ({"slo": {"tpot_s": 0.000_099}}, "slo.tpot_s"),
        ({"slo": {"ttft_s": 0.001, "deadline_s": 0.000_999}}, "slo.deadline_s"),
        ({"slo": {"ttft_s": "1"}}, "slo.ttft_s"),
        ({"slo": {"class_name": "x"}}, "slo"),
        ({"metadata": 5}, "metadata"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"best_of": 17}, "best_of"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"logit_bias": []}, "logit_bias"),
        ({"logit_bias": {"hello": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 1, "01": 2}}, "logit_bias"),
        ({"logit_bias": {"1": 100.5}}, "logit_bias[1]"),
        ({"logit_bias": {"1": "x"}}, "logit_bias[1]"),
        ({"logit_bias": {str(number): 1 for number in range(1025)}}, "logit_bias"),
        ({"logprobs": 5}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_wrong_types_and_ranges_name_the_field(fields: dict[str, Any], param: str) -> None:
    error = refusal(fields)
    assert (error.param, error.code) == (param, "invalid_value")


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"n": 3, "best_of": 2}, "best_of", "at least n, which is 3"),
        ({"use_beam_search": True, "n": 3, "best_of": 2}, "best_of", "at least n, which is 3"),
        ({"length_penalty": 0.5}, "length_penalty", "needs use_beam_search, or best_of above n"),
        ({"length_penalty": 0.5, "n": 2, "best_of": 2}, "length_penalty", "needs use_beam_search, or best_of above n"),
        ({"use_beam_search": True, "presence_penalty": 1}, "presence_penalty", "cannot be combined"),
        ({"use_beam_search": True, "repetition_penalty": 2}, "repetition_penalty", "cannot be combined"),
        ({"use_beam_search": True, "logit_bias": {"1": 1}}, "logit_bias", "cannot be combined"),
        ({"use_beam_search": True, "stream": True}, "stream", "with use_beam_search is known at its end only"),
        ({"best_of": 2, "stream": True}, "stream", "with best_of above n is known at its end only"),
        ({"best_of": 2, "stop": "x"}, "stop", "cannot be combined with best_of above n"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream is true"),
    ],
)
def test_fields_that_do_not_go_together_are_refused_by_name(fields: dict[str, Any], param: str, text: str) -> None:
    for model in (ChatCompletionRequest, CompletionRequest):
        error = refusal(fields, model)
        assert (error.param, error.code) == (param, "invalid_value")
        assert text in error.message


def test_fields_of_one_endpoint_that_do_not_go_together() -> None:
    assert refusal({"top_logprobs": 3}).param == "top_logprobs"
    assert refusal({"echo": True, "logprobs": 0}, CompletionRequest).param == "logprobs"


def test_fields_of_the_other_endpoint_are_refused_unless_they_ask_for_nothing() -> None:
    assert refusal({"tools": [{"type": "function"}]}, CompletionRequest).code == "unsupported_parameter"
    assert refusal({"tool_choice": "required"}, CompletionRequest).code == "unsupported_parameter"
    assert completion(tools=[], tool_choice="none", parallel_tool_calls=False) == completion()
    assert refusal({"echo": True}).code == "unsupported_parameter"
    assert refusal({"top_logprobs": 3}, CompletionRequest).code == "unsupported_parameter"
    assert chat(echo=False) == chat()
    assert completion(top_logprobs=0) == completion()


@pytest.mark.parametrize(
    ("fields", "num_candidates", "is_ranked"),
    [
        ({}, 1, False),
        ({"n": 3}, 3, False),
        ({"n": 3, "best_of": 3, "stream": True, "stop": "x"}, 3, False),
        ({"n": 2, "best_of": 5, "length_penalty": 0.5}, 5, True),
        ({"use_beam_search": True}, 1, True),
        ({"use_beam_search": True, "n": 4, "temperature": 0.7}, 4, True),
        ({"use_beam_search": True, "n": 1, "best_of": 4}, 4, True),
    ],
)
def test_candidates_are_n_or_best_of(fields: dict[str, Any], num_candidates: int, is_ranked: bool) -> None:
    body = chat(**fields)
    assert (body.num_candidates, body.is_ranked) == (num_candidates, is_ranked)


def test_logprobs_are_asked_for_in_two_ways() -> None:
    assert [chat().num_logprobs, chat(logprobs=False).num_logprobs, completion().num_logprobs] == [None, None, None]
    assert [chat(logprobs=True).num_logprobs, chat(logprobs=True, top_logprobs=20).num_logprobs] == [0, 20]
    assert [completion(logprobs=0).num_logprobs, completion(logprobs=5).num_logprobs] == [0, 5]


def test_a_bias_is_by_token_id() -> None:
    assert chat(logit_bias={"5": 1, "7": -100}).logit_bias == {5: 1.0, 7: -100.0}


@pytest.mark.parametrize("prompt", [5, ["a", [1]], [[1], "a"], [1, "a"], [True], [1.0], {"a": 1}, [["a"]], ["a"] * 65])
def test_a_wrong_prompt(prompt: Any) -> None:
    assert refusal({"prompt": prompt}, CompletionRequest).param == "prompt"


def test_unknown_fields_are_refused_by_name() -> None:
    error = refusal({"temprature": 1})
    assert (error.param, error.code) == ("temprature", "unknown_parameter")
    assert refusal({"messages": [USER | {"mood": "x"}]}).param == "messages[0].mood"


def test_missing_fields_are_named() -> None:
    with pytest.raises(ApiError) as error:
        parse_body(b"{}", CompletionRequest)
    assert (error.value.param, error.value.code) == ("model", "missing_required_parameter")
    assert refusal({"messages": [USER, {"role": "user"}]}).param == "messages[1].content"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b'{"a": NaN}', b'{"model": "\\ud800"}', b'{"model": "\xff"}', b"[" * 10_000, b'{"a": 1e999}'],
)
def test_what_is_no_json_is_said_so(data: bytes) -> None:
    with pytest.raises(ApiError) as error:
        parse_body(data, CompletionRequest)
    assert (error.value.status, error.value.code, error.value.param) == (400, "invalid_json", None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"model": "tiny", "prompt": "ab\xff"}', "byte 31 is 0xff, which is no UTF-8 there (invalid start byte)"),
        ('{"model": "größe", "prompt": "'.encode() + b'\xc3"}', "byte 32 is 0xc3, which is no UTF-8 there"),
    ],
)
def test_bytes_that_are_no_utf_8_are_told_by_their_place_in_the_body(data: bytes, said: str) -> None:
    with pytest.raises(ApiError) as error:
        parse_body(data, CompletionRequest)
    assert error.value.message.startswith(f"the body is not valid JSON: {said}")


def test_json_that_is_no_object() -> None:
    with pytest.raises(ApiError) as error:
        parse_body(b"[1]", CompletionRequest)
    assert error.value.status == 400


def test_messages_never_repeat_what_the_client_wrote() -> None:
    assert "secret" not in refusal({"messages": [{"role": "user", "content": {"secret": "secret"}}]}).message
