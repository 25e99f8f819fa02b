"""What may stand before an answer that is held to a form: the model's thoughts, and the header of its answer.

A form is the answer's alone, so a model that thinks before it answers still may. What it may write until then is a
part of the grammar that its output is held to (`Constraint.lead`), in Lark's notation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from gateway.reasoning.marks import ReasoningMarks

_REST = "SPACE: /[ \\t\\r\\n]{1,64}/\n"


def in_grammar(text: str, control_ids: Mapping[str, int]) -> str:
    """A text in a grammar, with those pieces of it that are control tokens as such; ``""`` for none."""
    for mark, token_id in control_ids.items():
        before, found, behind = text.partition(mark)
        if found:
            parts = (in_grammar(before, control_ids), f"<[{token_id}]>", in_grammar(behind, control_ids))
            return " ".join(filter(None, parts))
    return json.dumps(text) if text else ""


def lead_of(
    marks: ReasoningMarks, control_ids: Mapping[str, int], *, is_open: bool, thinks: bool, has_header: bool
) -> str:
    """The rules of ``lead``; ``""`` where nothing may stand there.

    ``control_ids`` has those texts of the marks that are control tokens of the model. ``is_open``: the prompt ends
    among thoughts. ``thinks``: the model may think. ``has_header``: what follows is an answer, and no call, which has a
    header of its own.
    """
    header = in_grammar(marks.answer, control_ids) if has_header else ""
    if not thinks:
        return f"lead: {header}\n" if header else ""
    end = in_grammar(marks.end, control_ids)
    thoughts = f"THOUGHTS {end}" if end.startswith("<[") else "thoughts"
    between = in_grammar(marks.between, control_ids) or "SPACE?"
    part = f"{thoughts} {between}"
    if not is_open:
        part = f"({in_grammar(marks.begin, control_ids)} {part})?"
    return f"lead: {part} {header}".rstrip() + f"\n{_thoughts_rule(marks.end, is_control=end.startswith('<['))}{_REST}"


def _thoughts_rule(end: str, *, is_control: bool) -> str:
    """Any text before a control token; else any up to the first end mark, and that."""
    if is_control:
        return "THOUGHTS: /(?s:.*)/\n"
    return f"thoughts[lazy]: /(?s:.*){re.escape(end).replace('/', chr(92) + '/')}/\n"
