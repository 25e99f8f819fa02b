"""What a client can be told of images that are not taken, as `gateway.openai.errors.errors` tells all else."""

from __future__ import annotations

from gateway.openai.errors.errors import ApiError, invalid


def takes_no_images(name: str, able: list[str]) -> ApiError:
    """The model reads texts alone; ``able``: those that read images."""
    which = f"these do: {', '.join(able)}" if able else "no model here does"
    return invalid(f"the model {name!r} takes no images; {which}", "model", code="model_not_supported")


def bad_image(why: str, param: str) -> ApiError:
    """An image of a request that no model could be shown."""
    return invalid(f"{param!r}: {why}", param)
