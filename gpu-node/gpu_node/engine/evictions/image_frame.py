"""What serialised KV of any kind has around it: the length of a header, the header (MessagePack), and the content."""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from gpu_node.engine.requests.image import ImageError, SerialisedImage

Header = TypeVar("Header", bound=msgspec.Struct)

_LENGTH = struct.Struct(">I")


def framed(header: msgspec.Struct, content: memoryview) -> tuple[bytes, memoryview]:
    """The serialised form, but for its content, and the content."""
    encoded = msgspec.msgpack.encode(header)
    return _LENGTH.pack(len(encoded)) + encoded, content


def unframed(data: SerialisedImage, kind: type[Header]) -> tuple[Header, memoryview]:
    """The header of a serialised form, and its content, whose memory it keeps; `ImageError` where it is torn."""
    view = memoryview(data)
    try:
        (num_header,) = _LENGTH.unpack_from(view)
        begin = _LENGTH.size + num_header
        if begin > len(view):
            raise ImageError(f"it does not decode: it ends inside its header of {num_header} bytes")
        return msgspec.msgpack.decode(view[_LENGTH.size : begin], type=kind), view[begin:]
    except ImageError:
        raise
    except Exception as error:  # struct's and msgspec's own, and what bad UTF-8 and deep nesting raise
        raise ImageError(f"it does not decode: {error}") from error
