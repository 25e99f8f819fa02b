"""Draws a pipeline as figure 6 of NanoFlow does: lanes one below the other, time from left to right, R in each box."""

from __future__ import annotations

from html import escape

from shared.config.pipelines.pipeline_file import LANES, PipelineFile, PipelineOperator

_WIDTH, _LEFT, _TOP, _LANE_HEIGHT, _BOX_HEIGHT = 1400, 90, 60, 64, 48
_COLOURS = {"compute": "#f4d35e", "memory": "#8fc78f", "network": "#8db7e0", "copy": "#c9b3d9"}
_CHARACTER_WIDTH = 6.5


def pipeline_svg(pipeline: PipelineFile) -> str:
    """An SVG document; what belongs to the layers before and behind is pale."""
    lanes = [lane for lane in LANES if any(one.lane == lane for one in pipeline.operators)]
    num_laps = max(2.0, max(one.end_s for one in pipeline.operators) / pipeline.layer_s)
    scale = (_WIDTH - _LEFT - 20) / (num_laps * pipeline.layer_s)
    height = _TOP + _LANE_HEIGHT * len(lanes) + 40
    title = (
        f"{pipeline.model} on {pipeline.num_devices} x {pipeline.device}, {pipeline.rows} rows: a layer in "
        f"{pipeline.layer_s * 1e6:.0f} µs, sequentially {pipeline.sequential_s * 1e6:.0f} µs"
    )
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="20" y="28" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for number, lane in enumerate(lanes):
        top = _TOP + number * _LANE_HEIGHT
        drawn.append(f'<text x="20" y="{top + _BOX_HEIGHT / 2 + 4:.0f}">{lane}</text>')
        for lap in (-1, 0, 1):
            for one in pipeline.operators:
                if one.lane == lane:
                    drawn += _box(one, lap, top, pipeline, scale, num_laps)
    for lap in range(int(num_laps) + 1):
        x = _LEFT + lap * pipeline.layer_s * scale
        drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 10}" y2="{height - 30}" stroke="#888"/>')
        drawn.append(f'<text x="{x + 3:.1f}" y="{height - 14}">{lap * pipeline.layer_s * 1e6:.0f} µs</text>')
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _box(one: PipelineOperator, lap: int, top: int, pipeline: PipelineFile, scale: float, num_laps: float) -> list[str]:
    """The part of an operator of one layer that is in the picture."""
    begin_s = max(0.0, one.start_s + lap * pipeline.layer_s)
    end_s = min(num_laps * pipeline.layer_s, one.end_s + lap * pipeline.layer_s)
    if end_s <= begin_s:
        return []
    x, width = _LEFT + begin_s * scale, (end_s - begin_s) * scale
    opacity = 1.0 if lap == 0 else 0.35
    drawn = [
        f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_BOX_HEIGHT}" fill="{_COLOURS[one.lane]}" '
        f'fill-opacity="{opacity}" stroke="#555"><title>{escape(one.name)} rows {one.rows[0]}-{one.rows[1]}, '
        f"R={one.r:.1f}</title></rect>"
    ]
    for line, text in enumerate((one.name, f"{one.rows[0]}-{one.rows[1]}", f"R={one.r:.1f}")):
        if len(text) * _CHARACTER_WIDTH < width:
            drawn.append(f'<text x="{x + 3:.1f}" y="{top + 14 + 14 * line}" opacity="{opacity}">{escape(text)}</text>')
    return drawn
