"""Calls as models of each family write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from gateway.tools.notation import DSML, GLM45, Notation


def in_objects(notation: Notation, calls: Sequence[tuple[str, str]], *, has_section: bool = True) -> str:
    """Of names and arguments, which are JSON; with the marks around all of them, where there are such."""
    if notation.separator:
        ids = [f":{number}" if notation.has_numbered_ids else "" for number in range(len(calls))]
        written = [
            f"{notation.before_name}{name}{number}{notation.separator}{arguments}"
            for (name, arguments), number in zip(calls, ids, strict=True)
        ]
        first, last = notation.section if notation.section and has_section else ("", "")
        if notation.is_section_on_lines and has_section:
            first, last = f"{first}\n", f"\n{last}"
        between = "\n" if notation.section else ""
        return first + between.join(f"{notation.begin}{one}{notation.end}" for one in written) + last
    objects = [f'{{"name": "{name}", "{notation.arguments_key}": {arguments}}}' for name, arguments in calls]
    if notation.is_list:
        return f"{notation.begin} [{', '.join(objects)}]{notation.list_end}"
    if notation.is_bare:
        return "; ".join(objects)
    if notation.is_run:
        return notation.begin + "\n".join(objects) + notation.end
    return "\n".join(f"{notation.begin}\n{one}\n{notation.end}" for one in objects)


def in_tags(notation: Notation, calls: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """Of names and arguments; strings are written as they are, other values as JSON."""
    if notation.section is not None:
        first, last = notation.section
        word = DSML if DSML in first else ""
        return "\n".join([first, *(_invoke(word, *call) for call in calls), last])
    return "\n".join(_glm(*call) if notation is GLM45 else _qwen(*call) for call in calls)


def _invoke(word: str, name: str, arguments: Mapping[str, object]) -> str:
    tags = []
    for key, value in arguments.items():
        says = f' string="{json.dumps(isinstance(value, str))}"' if word else ""
        tags.append(f'<{word}parameter name="{key}"{says}>{_text(value)}</{word}parameter>\n')
    return f'<{word}invoke name="{name}">\n{"".join(tags)}</{word}invoke>'


def _glm(name: str, arguments: Mapping[str, object]) -> str:
    tags = [f"<arg_key>{key}</arg_key>\n<arg_value>{_text(value)}</arg_value>\n" for key, value in arguments.items()]
    return f"<tool_call>{name}\n{''.join(tags)}</tool_call>"


def _qwen(name: str, arguments: Mapping[str, object]) -> str:
    tags = [f"<parameter={key}>\n{_text(value)}\n</parameter>\n" for key, value in arguments.items()]
    return f"<tool_call>\n<function={name}>\n{''.join(tags)}</function>\n</tool_call>"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
