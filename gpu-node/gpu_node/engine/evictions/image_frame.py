"""What serialised KV of any kind has around it: the content, a header (MessagePack), and the length of that.

What is known last comes last: content that has been made can be sent while the rest is computed.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from gpu_node.engine.requests.image import ImageError, SerialisedImage

Header = TypeVar("Header", bound=msgspec.Struct)

_LENGTH = struct.Struct(">I")


def framed(header: msgspec.Struct, content: memoryview) -> tuple[memoryview, bytes]:
    """The content, and what comes behind it in the serialised form."""
    encoded = msgspec.msgpack.encode(header)
    return content, encoded + _LENGTH.pack(len(encoded))


def unframed(data: SerialisedImage, kind: type[Header]) -> tuple[Header, memoryview]:
    """The header of a serialised form, and its content, whose memory it keeps; `ImageError` where it is torn."""
    view = memoryview(data)
    try:
        end = len(view) - _LENGTH.size
        (num_header,) = _LENGTH.unpack(view[max(0, end) :])
        if num_header > end:
            raise ImageError(f"it does not decode: it begins inside its header of {num_header} bytes")
        return msgspec.msgpack.decode(view[end - num_header : end], type=kind), view[: end - num_header]
    except ImageError:
        raise
    except Exception as error:  # struct's and msgspec's own, and what bad UTF-8 and deep nesting raise
        raise ImageError(f"it does not decode: {error}") from error
