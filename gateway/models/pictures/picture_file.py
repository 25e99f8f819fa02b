"""An image's file, looked at before it is queued: its kind and its size by its header, then whether it can be read.

A file of some kilobytes can claim to be gigapixels: nothing is decoded before its claim has been looked at.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from io import BytesIO

from PIL import ExifTags, Image
from PIL.JpegImagePlugin import JpegImageFile

from shared.messages.requests.pictures import MAX_PICTURE_PIXELS

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_HOLDS_LOCK = "WEBP"
"""Its decoder holds the interpreter's lock for a whole image, a quarter of a second for a large one. Opening has seen
that its file is whole; of what else may be wrong with one, a node tells."""
MAX_SCANS = 32
"""Of a JPEG, in each of which a decoder goes through the whole image: some 0.1 s of a large one, for 33 bytes of file.
Encoders write ten, or twice as many to save bytes."""
_SCAN = b"\xff\xda"
"""Begins one (ITU T.81, table B.1). Within what a scan encodes no byte FF is followed by anything like it, and where
other data has it, one is counted too many."""
_TURNED = frozenset({5, 6, 7, 8})
"""Orientations (EXIF 2.32, section 4.6.4) in which width and height change places."""

# Python writes each to standard error, and remembers it: a file of a client could have it do so 65,535 times.
warnings.filterwarnings("ignore", module=r"PIL\.")


class PictureFileError(ValueError):
    """It is not taken; the text says why, in words that go on from "the image"."""


def picture_size(data: bytes) -> tuple[int, int]:
    """Width and height in pixels, as it is seen; `PictureFileError` for what cannot be read, or is too large.

    Takes some 10 ms a megapixel, mostly without the interpreter's lock. Of several frames it is the first.
    """
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PICTURE_PIXELS:
                raise PictureFileError(f"has {width} x {height} pixels, and {MAX_PICTURE_PIXELS} are taken at most")
            if isinstance(image, JpegImageFile) and data.count(_SCAN) > MAX_SCANS:
                raise PictureFileError(f"has more than {MAX_SCANS} scans; save it as a JPEG that is not progressive")
            orientation = None
            with suppress(Exception):  # what a camera wrote beside the image may be anything
                orientation = image.getexif().get(ExifTags.Base.Orientation)
            if image.format != _HOLDS_LOCK:
                image.load()
    except PictureFileError:
        raise
    except Image.DecompressionBombError as error:
        raise PictureFileError(f"has more pixels than the {MAX_PICTURE_PIXELS} that are taken at most") from error
    except Exception as error:  # decoders raise what they like over a file that is none
        raise PictureFileError("cannot be read: it is no whole PNG, JPEG, WebP or GIF") from error
    return (height, width) if orientation in _TURNED else (width, height)
