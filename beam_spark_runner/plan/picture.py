"""Renders a plan for notebooks, as nested boxes of HTML without scripts and style sheets."""

from collections.abc import Iterator, Mapping
from html import escape
from types import MappingProxyType

from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.plan.explain import Explainer
from beam_spark_runner.plan.model import Plan, Segment, Stage

_NOTHING: Mapping[SegmentId, float] = MappingProxyType({})
_FONT = "font: 13px/1.5 system-ui, sans-serif; color: #1f2937"
_SEGMENT = (
    "border: 1px solid #94a3b8; border-radius: 8px; background: #f8fafc; "
    "padding: 8px 12px; margin: 8px 0"
)
_FILL = "; background: linear-gradient(to right, #dcfce7 {0}%, #f8fafc {0}%)"
_EXCHANGE = "border-top: 2px dashed #d97706; color: #92400e; margin: 10px 0 6px; padding-top: 2px"
_ROW = "display: flex; flex-wrap: wrap; gap: 8px"
_STAGE = (
    "border: 1px solid #2563eb; border-radius: 6px; background: #eff6ff; "
    "padding: 4px 8px; max-width: 100%"
)
_STEPS = "margin: 2px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; background: none; " + (
    "font: 12px/1.4 ui-monospace, monospace; color: #1f2937"
)
_KEPT = "border-top: 2px solid #059669; color: #065f46; margin-top: 10px; padding-top: 2px"


def picture(plan: Plan, filled: Mapping[SegmentId, float] = _NOTHING) -> str:
    """Render the segments, one below the other, each with its levels from top to bottom.

    Args:
        plan: The plan.
        filled: Which part of each segment is complete, from 0 to 1: of its box, this much is green.

    Returns:
        The HTML of one element.
    """
    return "".join(_parts(plan, Explainer(plan), filled))


def _parts(plan: Plan, words: Explainer, filled: Mapping[SegmentId, float]) -> Iterator[str]:
    yield f'<div style="{_FONT}"><b>{escape(words.summary())}</b>'
    for segment in plan.segments:
        part = filled.get(segment.id)
        fill = "" if part is None else _FILL.format(round(part * 100))
        yield f'<div style="{_SEGMENT}{fill}">{escape(words.title(segment))}'
        for title, level in words.levels(segment):
            style = _EXCHANGE if level.has_exchange else "margin: 6px 0"
            yield f'<div style="{style}">{escape(title)}</div><div style="{_ROW}">'
            for id_ in level.stages:
                yield from _stage(words, segment, plan.stages[id_])
            yield "</div>"
        if segment.writes:
            lines = "<br>".join(map(escape, words.materialised(segment)))
            yield f'<div style="{_KEPT}">Materialised at the end: {lines}</div>'
        yield "</div>"
    yield "</div>"


def _stage(words: Explainer, segment: Segment, stage: Stage) -> Iterator[str]:
    title, *lines = words.stage(segment, stage)
    yield f'<div style="{_STAGE}"><b>{escape(title)}</b>'
    yield f'<pre style="{_STEPS}">{escape(chr(10).join(lines))}</pre></div>'
