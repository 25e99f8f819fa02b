"""What is kept of a request: its serialised form, what makes it unusable, and the memory that it may take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.engine.evictions.image_codec import decode_image
from gpu_node.engine.evictions.parking_lot import ParkingLot
from gpu_node.engine.requests.beams import Hypothesis
from gpu_node.engine.requests.image import BlockFormat, ImageError, RequestImage, RequestState, SequenceState
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node import bookkeeping
from tests.gpu_node.image_bytes import encode_image

MODEL = replace(bookkeeping.model(), block_bytes=4, kv_layout="test")
LOGPROB = TokenLogprob(-0.1, [(7, -0.1), (8, -2.0)])
STATE = RequestState(
    request_id="a",
    attempt=1,
    format=BlockFormat.of(MODEL),
    num_blocks=3,
    sequences=[
        SequenceState(0, [5, 6], 7, [0, 1], [LOGPROB, LOGPROB], -0.2, [(7, -1 / 3)]),
        SequenceState(2, [5, 8], 6, [0, 2], [LOGPROB, LOGPROB], -0.3, []),
    ],
    num_shared_tokens=5,
    is_forked=True,
    hypotheses=[Hypothesis(-1.5, [4, 99], [LOGPROB, LOGPROB], "stop")],
    num_cached_tokens=4,
)


def image(request_id: str = "a", num_blocks: int = 3) -> RequestImage:
    state = replace(STATE, request_id=request_id, num_blocks=num_blocks)
    return RequestImage(state, memoryview(bytes(range(4 * num_blocks))))


def test_an_image_comes_back_from_its_serialised_form() -> None:
    found = decode_image(encode_image(image()))
    assert found.state == STATE
    assert found.content == bytes(range(12))


def test_tokens_are_counted_once_however_many_sequences_share_them() -> None:
    assert (STATE.kv_tokens, STATE.num_bytes) == (4 + 3 + 2, 12)


def test_some_of_the_blocks() -> None:
    assert bytes(image().part((2, 0))) == bytes([8, 9, 10, 11, 0, 1, 2, 3])
    assert image().part((0, 1, 2)) == bytes(range(12))


def test_blocks_without_content() -> None:
    state = replace(STATE, format=replace(STATE.format, kv_layout=""))
    found = decode_image(encode_image(RequestImage(state, memoryview(b""))))
    assert (found.state.num_bytes, bytes(found.part((1,)))) == (12, b"")


DEEP = b"\x82\xa7version\x03\xa1x" + b"\x91" * 100_000
NESTED = DEEP + len(DEEP).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not decode"),
        (b"\x81\xa7version\x01", "does not decode"),
        (encode_image(image())[:-1], "does not decode"),
        (encode_image(image())[1:], "its content has 11 bytes instead of 12"),
        (encode_image(image())[:3], "does not decode"),
        (encode_image(image())[:9], "it begins inside its header"),
        (encode_image(image(num_blocks=2)), "its 2 blocks are not those of its sequences"),
        (encode_image(image(num_blocks=4)), "its 4 blocks are not those of its sequences"),
        (encode_image(RequestImage(replace(STATE, num_blocks=1 << 60), memoryview(b""))), "blocks are not those"),
        (encode_image(image()).replace(b"_id\xa1a", b"_id\xa1\xff"), "does not decode: 'utf-8' codec"),
        (NESTED, "does not decode: maximum recursion depth"),
        (encode_image(RequestImage(STATE, memoryview(b"1234"))), "its content has 4 bytes instead of 12"),
        (encode_image(image()).replace(b"\xa7version\x03", b"\xa7version\x02"), "it is of version 2"),
    ],
)
def test_what_is_no_image_of_this_version_is_said_so(data: bytes, words: str) -> None:
    with pytest.raises(ImageError, match=words):
        decode_image(data)


def test_an_image_is_of_one_attempt_and_one_format() -> None:
    request = replace(bookkeeping.payload("a", [1, 2, 3, 4, 5]), attempt=1)
    assert STATE.refusal(request, MODEL) == ""
    words = replace(MODEL, vocab_size=99)
    assert STATE.refusal(request, words) == "it has a token outside the vocabulary of 99"  # of a hypothesis
    shorter = replace(request, prompt_token_ids=[1, 2, 3, 4])
    assert STATE.refusal(shorter, MODEL) == "it has computed more tokens than there are"
    assert "attempt 1 of 'a'" in STATE.refusal(replace(request, attempt=2), MODEL)
    for other in (replace(MODEL, name="b"), replace(MODEL, block_size=8), replace(MODEL, kv_layout="other")):
        assert STATE.refusal(request, other).startswith("its blocks are")


def test_formats_have_names_that_tell_them_apart() -> None:
    one = BlockFormat.of(MODEL)
    others = [replace(one, **change) for change in ({"block_size": 8}, {"block_bytes": 8}, {"kv_layout": "other"})]
    assert len({each.name for each in (one, *others)}) == 4
    assert replace(one, model="another").name == one.name == "5cd61bc8"
    assert replace(one, kv_layout="").name == "", "blocks without content are taken by anybody"


def test_images_are_kept_while_there_is_room_and_none_goes_for_another() -> None:
    lot = ParkingLot(20)
    assert lot.put(image("a"))
    assert not lot.put(image("b", num_blocks=3))
    assert lot.put(image("c", num_blocks=2))
    assert (lot.num_bytes, lot.has_room(1)) == (20, False)
    assert lot.state("a") == STATE
    assert "b" not in lot
    lot.check()
    taken = lot.take("a")
    assert taken is not None
    assert taken.state == STATE
    assert lot.take("a") is None
    assert lot.put(image("b"))
    lot.check()
    lot.clear()
    assert lot.num_bytes == 0


def test_what_is_given_away_counts_until_it_is_released_and_may_come_back_meanwhile() -> None:
    lot = ParkingLot(24)
    assert lot.give("a") is None
    lot.put(image())
    assert lot.give("a") == (1, image())
    assert "a" not in lot
    assert lot.num_bytes == 12
    assert lot.put(image()), "the other node has given it back before this one has heard that it had it"
    assert not lot.has_room(1)
    assert lot.give("a") == (2, image())
    lot.check()
    lot.clear()
    lot.release(1)
    lot.release(1)
    assert lot.num_bytes == 12
    lot.release(2)
    assert lot.num_bytes == 0
    lot.check()
