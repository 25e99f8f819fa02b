"""Images: what one engine hands over of a request, and another takes up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from gpu_node.engine.evictions.image_codec import decode_image
from gpu_node.engine.requests.image import ImageError, RequestImage
from gpu_node.engine.steps.batch.resumption import resumed
from shared.messages.requests.payload import Payload, Sampling
from tests.fuzz.target import Target, refused, rule
from tests.fuzz.trees import msgpack_mutator
from tests.gpu_node.engine.requests.test_image import MODEL, STATE
from tests.gpu_node.image_bytes import encode_image

PAYLOAD = Payload("a", 1, "g", MODEL.name, [1, 2, 3, 4, 5], Sampling(max_tokens=8, num_choices=3, num_candidates=3))


def _images() -> Sequence[bytes]:
    bare = replace(STATE, format=replace(STATE.format, kv_layout=""))
    images = [RequestImage(STATE, memoryview(bytes(range(12)))), RequestImage(bare, memoryview(b""))]
    return [encode_image(image) for image in images]


def _check(data: bytes) -> bool:
    """What is taken for an image can be asked everything, and is read again as the same."""
    found: list[RequestImage] = []
    if refused(lambda: found.append(decode_image(data)), ImageError):
        return False
    image = found[0]
    state = image.state
    rule(0 <= state.num_blocks <= sum(len(one.places) for one in state.sequences), "each block belongs to a sequence")
    rule(0 <= state.kv_tokens <= state.num_blocks * state.format.block_size, "blocks hold what fits into them")
    rule(len(image.content) in (0, state.num_bytes), "the content is that of its blocks")
    image.part(tuple(range(state.num_blocks)))
    image.part(tuple(place for one in state.sequences for place in one.places))
    rule(encode_image(decode_image(encode_image(image))) == encode_image(image), "it is read again as the same")
    if not state.refusal(PAYLOAD, MODEL):
        resumed(state, PAYLOAD, 0, count(), 64)
    return True


TARGETS = [Target("images", _images, _check, msgpack_mutator, share=50)]
