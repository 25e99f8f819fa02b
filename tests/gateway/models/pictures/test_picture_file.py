"""Files of images, before anything of them is queued."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from gateway.models.pictures.picture_file import MAX_SCANS, PictureFileError, picture_size
from shared.messages.requests.pictures import MAX_PICTURE_PIXELS
from tests.gateway.picture_tiny import image_file


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_the_size_of_each_kind(kind: str) -> None:
    assert picture_size(image_file(kind, (48, 40))) == (48, 40)


@pytest.mark.parametrize(("orientation", "size"), [(1, (48, 40)), (3, (48, 40)), (6, (40, 48)), (8, (40, 48))])
def test_an_image_that_a_camera_has_turned_is_as_it_is_seen(orientation: int, size: tuple[int, int]) -> None:
    assert picture_size(image_file("JPEG", (48, 40), orientation=orientation)) == size


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_half_a_file_is_none(kind: str) -> None:
    whole = image_file(kind, (200, 200))
    with pytest.raises(PictureFileError, match="cannot be read"):
        picture_size(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    "content", [b"", b"<svg/>", b"%PDF-1.4", b"BM" + bytes(60), image_file("BMP"), image_file("TIFF")]
)
def test_other_files_are_not_taken(content: bytes) -> None:
    with pytest.raises(PictureFileError, match="no whole PNG, JPEG, WebP or GIF"):
        picture_size(content)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def claimed(width: int, height: int) -> bytes:
    """A PNG of no pixels whose header says that it has many."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(4097, 4096), (100_000, 100_000), (1 << 31, 1)])
def test_a_claim_of_too_many_pixels_is_refused_by_its_header(width: int, height: int) -> None:
    with pytest.raises(PictureFileError, match=rf"{MAX_PICTURE_PIXELS}|cannot be read"):
        picture_size(claimed(width, height))


def test_the_most_pixels_are_looked_at() -> None:
    with pytest.raises(PictureFileError, match="cannot be read"):  # its pixels are not there
        picture_size(claimed(4096, 4096))


def progressive(num_scans: int) -> bytes:
    """Its last scan is there as often as it takes: decoders go through the whole image each time."""
    file = BytesIO()
    Image.new("L", (48, 40), 128).save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    last = whole[whole.rindex(b"\xff\xda") : -2]
    return whole[:-2] + last * (num_scans - whole.count(b"\xff\xda")) + whole[-2:]


def test_a_small_file_of_many_scans_is_not_decoded() -> None:
    """33 bytes a scan, of which one takes 0.1 s where an image is large: 100 KB took minutes."""
    assert picture_size(progressive(MAX_SCANS)) == (48, 40)
    with pytest.raises(PictureFileError, match="has more than 32 scans; save it as a JPEG that is not progressive"):
        picture_size(progressive(MAX_SCANS + 1))


def test_what_a_decoder_thinks_of_a_file_is_written_nowhere(tmp_path: Path) -> None:
    """Each of these tags claims more than there is, which would be a line of standard error each."""
    whole, header = image_file(), 33
    tags = b"".join(struct.pack("<HHLL", 1000 + number, 7, 1 << 20, 8) for number in range(200))
    exif = b"II*\0" + struct.pack("<LH", 8, 200) + tags + bytes(4)
    (tmp_path / "image.png").write_bytes(whole[:header] + chunk(b"eXIf", exif) + whole[header:])
    name = "gateway.models.pictures.picture_file"
    read = f"from {name} import picture_size; print(picture_size(open('image.png', 'rb').read()))"
    done = subprocess.run([sys.executable, "-c", read], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("(48, 40)\n", "")
