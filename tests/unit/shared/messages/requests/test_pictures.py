"""Images of a prompt."""

from __future__ import annotations

from shared.messages.requests.pictures import Picture


def test_an_image_has_another_name_in_each_partition() -> None:
    """What the vision part has made of it is cached too."""
    digest = "9f86d081" * 8
    picture = Picture(digest, 3, 1, 4)
    assert [picture.name_in(partition) for partition in ("", "0f" * 16)] == [digest, digest + "0f" * 16]
