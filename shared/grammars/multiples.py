"""What ``multipleOf`` costs: a state for each remainder, which llguidance's limits do not count.

A schema of one line with ``"multipleOf": 100000007`` would take minutes and gigabytes of the process that builds it.
Where several hold for one value, remainders are told apart by their least common multiple.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

MAX_REMAINDERS = 200_000
"""Of a schema: a second of a core, and 50 MB."""

MAX_DIGITS = 12  # before the point, and behind it; llguidance takes fewer
_KEY = "multipleOf"
_COMBINING = frozenset({_KEY, "allOf", "anyOf", "oneOf", "$ref", "$dynamicRef"})
"""Two of them in one place may hold for one value."""
_JSON = re.compile(r"%json\s*+")


def multiples_problem(schemas: Iterable[Any]) -> str:
    """Why these schemas take too much; ``""`` where they do not."""
    parts = [part for schema in schemas for part in _objects(schema)]
    numbers = [number for part in parts for number in _multiples(part)]
    if any(number.adjusted() > MAX_DIGITS for number in numbers) or _num_remainders(parts, numbers) > MAX_REMAINDERS:
        return f"the numbers of its multipleOf are too large together: they have more than {MAX_REMAINDERS} remainders"
    return ""


def _num_remainders(parts: Iterable[dict[str, Any]], numbers: Sequence[Decimal]) -> int:
    if not any(len(_COMBINING & part.keys()) > 1 or "allOf" in part for part in parts):
        return sum(map(_whole, numbers, map(_num_decimals, numbers)))
    num_decimals = max(map(_num_decimals, numbers), default=0)
    return len(numbers) * math.lcm(*(_whole(number, num_decimals) for number in numbers))


def schemas_in(grammar: str) -> Iterator[Any]:
    """The schemas that stand in a grammar of Lark's kind and may have one; `ValueError` where that cannot be seen."""
    if _KEY not in grammar and "\\u" not in grammar:
        return
    decoder = json.JSONDecoder()
    for found in _JSON.finditer(grammar):
        try:
            yield decoder.raw_decode(grammar, found.end())[0]
        except (ValueError, RecursionError) as error:
            raise ValueError("a JSON schema follows %json at once") from error


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
            yield one


def _multiples(part: dict[str, Any]) -> Iterator[Decimal]:
    number = part.get(_KEY)
    if isinstance(number, int | float) and not isinstance(number, bool):
        found = Decimal(repr(number))
        if found.is_finite() and found:
            yield found.normalize()


def _num_decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "it is finite"
    return min(max(-exponent, 0), MAX_DIGITS)


def _whole(number: Decimal, num_decimals: int) -> int:
    """In units of a decimal; one that is smaller counts as one."""
    return max(abs(int(number.scaleb(num_decimals))), 1)
