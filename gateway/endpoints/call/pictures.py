"""Images of a request: read out of its fields, looked at, and counted, before anything of it is queued."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from gateway.models.models import ServedModel
from gateway.models.pictures.picture_counts import MAX_ASPECT
from gateway.models.pictures.picture_file import PictureFileError, picture_size
from gateway.openai.errors import errors
from gateway.openai.errors.picture_errors import bad_image, takes_no_images
from gateway.openai.requests.chat_messages import ChatMessage
from gateway.tenants.turn_threads import TenantThreads
from shared.messages.requests.pictures import MAX_PICTURES, MAX_PICTURES_BYTES, MAX_PICTURES_PIXELS, Picture

_TYPES = "image/png, image/jpeg, image/webp, image/gif"
_DATA_URL = re.compile(r"data:image/(?:png|jpe?g|webp|gif);base64,", re.IGNORECASE)
_INLINE = f"images are taken inline alone, and nothing is fetched: send 'data:TYPE;base64,…' (TYPE: {_TYPES})"


@dataclass(frozen=True)
class _Given:
    field: str
    url: str


async def read_pictures(
    messages: Sequence[ChatMessage], model: ServedModel, able: list[str], threads: TenantThreads
) -> list[Picture]:
    """The images of a conversation, in its order; ``able``: models that take any. `ApiError` 400 names a field."""
    given = [
        _Given(f"messages[{number}].content[{place}].image_url.url", part.image_url.url)
        for number, message in enumerate(messages)
        for place, part in message.images
    ]
    if not given:
        return []
    if model.pictures is None:
        raise takes_no_images(model.name, able)
    if len(given) > MAX_PICTURES:
        raise errors.invalid(f"{len(given)} images are more than the {MAX_PICTURES} of a request", "messages")
    return await threads.run_pictures(partial(_read, given, model))


def _read(given: Sequence[_Given], model: ServedModel) -> list[Picture]:
    """On the thread for it."""
    num_bytes = num_pixels = 0
    pictures: list[Picture] = []
    for one in given:
        content = _content(one)
        num_bytes += len(content)
        if num_bytes > MAX_PICTURES_BYTES:
            raise bad_image(f"the images have more than {MAX_PICTURES_BYTES} bytes together", one.field)
        try:
            width, height = picture_size(content)
        except PictureFileError as error:
            raise bad_image(f"the image {error}", one.field) from error
        num_pixels += width * height
        if num_pixels > MAX_PICTURES_PIXELS:
            raise bad_image(f"the images have more than {MAX_PICTURES_PIXELS} pixels together", one.field)
        if max(width, height) > MAX_ASPECT * min(width, height):
            raise bad_image(f"the image is more than {MAX_ASPECT} times as long as it is wide", one.field)
        assert model.pictures is not None
        num_tokens = model.pictures.count(width, height)
        pictures.append(Picture(sha256(content).hexdigest(), width, height, num_tokens, content))
    return pictures


def _content(given: _Given) -> bytes:
    head = _DATA_URL.match(given.url)
    if head is None:
        raise bad_image(_INLINE, given.field)
    try:
        return base64.b64decode(given.url[head.end() :].encode("ascii"), validate=True)
    except ValueError as error:  # also of characters that are not ASCII
        raise bad_image("the image is no valid base64", given.field) from error


def num_extra_tokens(pictures: Sequence[Picture]) -> int:
    """That the images of a prompt are beside the one token that stands there for each."""
    return sum(picture.num_tokens - 1 for picture in pictures)
