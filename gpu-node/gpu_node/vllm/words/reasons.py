"""Why vLLM does not serve a model, in one line, out of what it says about it in many."""

from __future__ import annotations

import re

MAX_CHARACTERS = 500
_RAISED = re.compile(r"^(?:[A-Z]+ [\w.]+: )?(?P<type>[\w.]*(?:Error|Exception)): (?P<text>.+)$")
_OF_PYDANTIC = re.compile(r"(?:Value|Assertion) error, (?P<text>.+?)(?: \[type=|$)", re.DOTALL)


def one_line(text: str) -> str:
    """The first paragraph of a message; of pydantic's, what the check said."""
    found = _OF_PYDANTIC.search(text)
    paragraph = (found["text"] if found else text).strip().split("\n\n", 1)[0]
    return " ".join(paragraph.split())[:MAX_CHARACTERS]


def first_error(log: str) -> str:
    """What was raised first, by the text of a log with tracebacks; ``""`` where nothing was.

    The first is the cause: processes that waited for the one that failed fail after it.
    """
    lines = log.splitlines()
    inside = False
    for number, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and (found := _RAISED.match(line)):
            following = _rest(lines[number + 1 :])
            return one_line("\n".join([found["text"], *following]))
    return ""


def _rest(lines: list[str]) -> list[str]:
    """The rest of a message, up to the next entry of the log or traceback."""
    rest = []
    for line in lines:
        if not line or line.startswith(("Traceback", "ERROR ", "During handling", "The above exception")):
            break
        rest.append(line)
    return rest
