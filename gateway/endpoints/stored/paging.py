"""Where in a list an answer begins and ends, by the query of its request."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiohttp import web

from gateway.openai.errors import errors

MAX_QUERY_CHARACTERS = 64


def page_query(
    http: web.Request,
    most: int,
    usual: int,
    choices: Mapping[str, Collection[str]] | None = None,
    places: Collection[str] = ("after",),
) -> dict[str, str]:
    """``limit`` (1 to ``most``), one of ``places``, and fields with few values; `ApiError` 400 for others."""
    choices = choices or {}
    found = {"limit": str(usual)}
    for name, text in http.query.items():
        if name not in ("limit", *places, *choices):
            raise errors.invalid(f"{name[:MAX_QUERY_CHARACTERS]!r} is not a known parameter", name, "unknown_parameter")
        if len(text) > MAX_QUERY_CHARACTERS:
            raise errors.invalid(f"{name!r} is too long", name)
        if name == "limit" and not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
            raise errors.invalid(f"'limit' is 1 to {most}", name)
        if name in choices and text not in choices[name]:
            raise errors.invalid(f"{name!r} is one of {', '.join(choices[name])}", name)
        found[name] = text
    given = [name for name in places if name in found]
    if len(given) > 1:
        raise errors.invalid(f"{given[0]!r} and {given[1]!r} do not go together: name one of them", given[1])
    return found
