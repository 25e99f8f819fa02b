"""Events that add to one text, written once: then number and text are put in their places."""

from __future__ import annotations

from gateway.answers.blocks import AnswerBlock
from gateway.answers.event import named
from gateway.answers.spliced import MARK, SplicedText
from gateway.responses.rendering.events import OutputTextDelta
from gateway.responses.rendering.output_items import item_id

_NUMBER = b'"sequence_number":'


class SplicedDelta:
    """Of one block of text. Exactly what writing the whole event would give."""

    def __init__(self, block: AnswerBlock, request_id: str) -> None:
        self.block = block
        name = item_id(block, request_id)
        event = OutputTextDelta(sequence_number=0, output_index=block.number, item_id=name, delta=MARK)
        # the number comes before all that a client could have written
        before, found, behind = named("response.output_text.delta", event).partition(_NUMBER + b"0")
        assert found
        self._before = before + _NUMBER
        self._rest = SplicedText(behind)

    def around(self, number: int, text: str) -> bytes:
        """The event with this number and text, as it goes out."""
        return b"%b%d%b" % (self._before, number, self._rest.around(text))
