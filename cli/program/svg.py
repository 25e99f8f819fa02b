"""Draws a program: operators as boxes from top to bottom, coloured by class; buffers as lines from writer to reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from cli.program.report import Block, OperatorRow, Report, operator_title, short_number
from cli.program.words import WHAT_IT_DOES
from gpu_node.graph.program import POSITIONS, TOKEN_IDS, OperatorClass

_BOX_LEFT, _BOX_WIDTH, _BOX_HEIGHT, _BOX_GAP = 30, 430, 40, 14
_TITLE_HEIGHT, _TOP = 34, 100
_LANE_WIDTH = 22
_LINE_HEIGHT = 15
_LEAST_WIDTH = 780
_LABEL_CHARACTERS = 62
_COLOURS = {
    OperatorClass.COMPUTE: "#f4b183",
    OperatorClass.MEMORY: "#9dc3e6",
    OperatorClass.NETWORK: "#a9d18e",
}
_INPUT_COLOUR = "#e7e6e6"
_LINES = (
    *("#3b6fb6", "#b5483a", "#4b8b3b", "#8a5aa8", "#b07d1a", "#2f8f8f"),
    *("#a0467d", "#5c5c5c", "#1f3d7a", "#7a4a21", "#6f8f00", "#d0548f"),
)


@dataclass(frozen=True, slots=True)
class _Box:
    label: str
    detail: str
    colour: str
    top: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def entry(self, buffer: str) -> int:
        """Where the line of ``buffer`` comes in; those of several buffers stay apart."""
        return self.top + 8 + 8 * self.reads.index(buffer)

    @property
    def exit(self) -> int:
        """Where the line of what it writes goes out, below those that come in."""
        return self.top + _BOX_HEIGHT - 7


@dataclass(frozen=True, slots=True)
class _Edge:
    buffer: str
    source: _Box
    readers: tuple[_Box, ...]


def program_svg(report: Report, title: str, subtitle: str) -> str:
    """An SVG document; equal layers are drawn once."""
    frames, boxes, height = _layout(report)
    edges = _edges(boxes)
    lanes = _lanes(edges)
    width = max(_LEAST_WIDTH, _BOX_LEFT + _BOX_WIDTH + 40 + _LANE_WIDTH * (len(lanes) + 5))
    colours: dict[str, str] = {}
    for edge in edges:  # from top to bottom: lines beside one another differ
        colours.setdefault(edge.buffer, _LINES[len(colours) % len(_LINES)])
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_BOX_LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<text x="{_BOX_LEFT}" y="43">{escape(subtitle)}</text>',
        *_legend(),
        *frames,
        *(text for number, lane in enumerate(lanes) for edge in lane for text in _draw_edge(edge, number, colours)),
        *(_label(edge, number, colours) for number, lane in enumerate(lanes) for edge in lane),
        *(text for box in boxes for text in _draw_box(box)),
        "</svg>",
    ]
    return "\n".join(drawn) + "\n"


def _layout(report: Report) -> tuple[list[str], list[_Box], int]:
    """Frames of the blocks as text, all boxes, and the height of the whole."""
    boxes = [
        _Box(name, detail, _INPUT_COLOUR, _TOP + number * (_BOX_HEIGHT + _BOX_GAP), (), (name,))
        for number, (name, detail) in enumerate(
            ((TOKEN_IDS, "the tokens of the step"), (POSITIONS, "their places in their sequences"))
        )
    ]
    frames = []
    top = _TOP + len(boxes) * (_BOX_HEIGHT + _BOX_GAP)
    for block in report.blocks:
        frame_top = top
        top += _TITLE_HEIGHT
        for line in block.lines:
            boxes.append(_box(line, top))
            top += _BOX_HEIGHT + _BOX_GAP
        frames.append(_frame(block, frame_top, top - frame_top - _BOX_GAP // 2))
        top += _BOX_GAP
    return frames, boxes, top + 10


def _box(line: OperatorRow, top: int) -> _Box:
    operator = line.operator
    label = " · ".join([operator_title(operator), *line.weights])
    if len(label) > _LABEL_CHARACTERS:
        label = f"{operator_title(operator)} · {len(line.weights)} weights"
    flops, num_bytes = short_number(line.cost.flops, "FLOP"), short_number(line.cost.num_bytes, "B")
    detail = f"→ {', '.join(line.writes)} · {flops}, {num_bytes}" if line.writes else WHAT_IT_DOES[operator.kind]
    if line.cost.wire_bytes:
        detail += f", {short_number(line.cost.wire_bytes, 'B')} sent"
    return _Box(
        label=label,
        detail=detail,
        colour=_COLOURS[operator.operator_class],
        top=top,
        reads=line.sources,
        writes=line.targets,
    )


def _frame(block: Block, top: int, height: int) -> str:
    left, width = _BOX_LEFT - 14, _BOX_WIDTH + 28
    dash = "" if block.num_same > 1 else ' stroke-dasharray="4 3"'
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="#fafafa" stroke="#999"{dash}/>'
        f'<text x="{_BOX_LEFT}" y="{top + 21}" font-weight="bold">{escape(block.title)}</text>'
    )


def _edges(boxes: list[_Box]) -> list[_Edge]:
    """For each write of a buffer, the boxes that read it before it is written again; from top to bottom."""
    edges: list[_Edge] = []
    for number, source in enumerate(boxes):
        for buffer in source.writes:
            readers = []
            for box in boxes[number + 1 :]:
                if buffer in box.reads:
                    readers.append(box)
                if buffer in box.writes:
                    break
            if readers:
                edges.append(_Edge(buffer, source, tuple(readers)))
    return edges


def _lanes(edges: list[_Edge]) -> list[list[_Edge]]:
    """Lanes from left to right in which no two lines meet; short lines go nearest to the boxes."""
    lanes: list[list[_Edge]] = []
    for edge in sorted(edges, key=_length):
        for lane in lanes:
            if all(_apart(edge, other) for other in lane):
                lane.append(edge)
                break
        else:
            lanes.append([edge])
    return lanes


def _length(edge: _Edge) -> tuple[int, int]:
    return edge.readers[-1].top - edge.source.top, edge.source.top


def _apart(one: _Edge, other: _Edge) -> bool:
    return one.readers[-1].top <= other.source.top or other.readers[-1].top <= one.source.top


def _draw_edge(edge: _Edge, lane: int, colours: dict[str, str]) -> Iterator[str]:
    right, colour = _BOX_LEFT + _BOX_WIDTH, colours[edge.buffer]
    x = _lane_x(lane)
    start, end = edge.source.exit, edge.readers[-1].entry(edge.buffer)
    yield f'<path d="M{right} {start} H{x} V{end} H{right}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
    for reader in edge.readers:
        y = reader.entry(edge.buffer)
        yield f'<path d="M{x} {y} H{right}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
        yield f'<path d="M{right} {y} l7 -4 v8 z" fill="{colour}"/>'


def _label(edge: _Edge, lane: int, colours: dict[str, str]) -> str:
    """The name of a buffer beside its line, over all lines; those that one box writes stand one below the other."""
    y = edge.source.exit + 11 + 10 * edge.source.writes.index(edge.buffer)
    return (
        f'<text x="{_lane_x(lane) + 3}" y="{y}" font-size="9" fill="{colours[edge.buffer]}" stroke="white" '
        f'stroke-width="3" paint-order="stroke">{escape(edge.buffer)}</text>'
    )


def _lane_x(lane: int) -> int:
    return _BOX_LEFT + _BOX_WIDTH + 30 + lane * _LANE_WIDTH


def _draw_box(box: _Box) -> Iterator[str]:
    yield (
        f'<rect x="{_BOX_LEFT}" y="{box.top}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="4" '
        f'fill="{box.colour}" stroke="#555"/>'
    )
    yield f'<text x="{_BOX_LEFT + 8}" y="{box.top + 16}">{escape(box.label)}</text>'
    yield (
        f'<text x="{_BOX_LEFT + 8}" y="{box.top + 16 + _LINE_HEIGHT}" font-size="10" fill="#333">'
        f"{escape(box.detail)}</text>"
    )


def _legend() -> Iterator[str]:
    x = _BOX_LEFT
    for operator_class, colour in _COLOURS.items():
        yield f'<rect x="{x}" y="58" width="14" height="14" fill="{colour}" stroke="#555"/>'
        yield f'<text x="{x + 20}" y="70">bound by {operator_class}, as a rule</text>'
        x += 220
