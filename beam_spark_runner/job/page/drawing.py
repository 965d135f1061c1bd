"""Draws a graph and small charts as SVG, without scripts and styles: classes name the colours.

Every text is escaped here: names of steps are chosen by users.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from beam_spark_runner.job.page.graph_layout import HEIGHT, WIDTH, lay_out
from beam_spark_runner.job.page.texts import shortened_middle

_CHARACTERS = 25  # that fit into a node
_BAR_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnNode:
    """A node of a graph.

    Attributes:
        path: Its full name, by which edges name it.
        label: The text that is shown.
        detail: A second line.
        state: A class of the style sheet, and a word.
        href: Where a click leads.
        unfold: Where a click on its corner leads, which shows its parts. "": it has none.
        share: The part of the working time that it takes, 0 to 1.
        is_chosen: Whether its panel is shown.
    """

    path: str
    label: str
    detail: str
    state: str
    href: str
    unfold: str = ""
    share: float = 0.0
    is_chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEdge:
    """An edge of a graph: the paths of its ends, its kind as a class, and a text at its target."""

    source: str
    target: str
    kind: str
    label: str = ""


def graph_svg(nodes: Sequence[DrawnNode], edges: Sequence[DrawnEdge]) -> str:
    """Draw a graph, from top to bottom."""
    return "".join(_graph(nodes, edges))


def _graph(nodes: Sequence[DrawnNode], edges: Sequence[DrawnEdge]) -> Iterator[str]:
    layout = lay_out([item.path for item in nodes], [(item.source, item.target) for item in edges])
    size = f'width="{layout.width}" height="{layout.height}"'
    view = f'viewBox="0 0 {layout.width} {layout.height}"'
    yield f'<svg class="graph" {size} {view} role="group" aria-label="Steps and their edges">'
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/>'
        "</marker></defs>"
    )
    for edge in edges:
        points = layout.edges[edge.source, edge.target]
        title = escape(f"{edge.source} → {edge.target}: {edge.kind}")
        yield f'<g class="edge {escape(edge.kind)}"><title>{title}</title>'
        yield f'<path d="{_curve(points)}" marker-end="url(#tip)"/></g>'
    for edge in edges:
        if edge.label:
            (x1, y1), (x2, y2) = layout.edges[edge.source, edge.target][-2:]
            at = f'x="{(x1 + x2) // 2 + 6}" y="{(y1 + y2) // 2 + 4}"'
            yield f'<text class="edge-label" {at}>{escape(edge.label)}</text>'
    for node in nodes:
        yield from _node(node, *layout.nodes[node.path])
    yield "</svg>"


def _node(node: DrawnNode, x: int, y: int) -> Iterator[str]:
    chosen = " chosen" if node.is_chosen else ""
    stacked = " stacked" if node.unfold else ""
    label = escape(f"{node.path}, {node.state}, {node.detail}", quote=True)
    yield f'<g class="node {escape(node.state)}{chosen}{stacked}" transform="translate({x} {y})">'
    yield f'<a href="{escape(node.href, quote=True)}" aria-label="{label}" data-soft="">'
    yield f"<title>{escape(node.path)}</title>"
    if node.unfold:
        yield f'<rect class="behind" x="4" y="4" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
    yield f'<rect class="box" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
    yield f'<rect class="mark" x="0" y="10" width="4" height="{HEIGHT - 20}" rx="2"/>'
    name = escape(shortened_middle(node.label, _CHARACTERS))
    yield f'<text class="name" x="14" y="21">{name}</text>'
    yield f'<text class="detail" x="14" y="39">{escape(node.detail)}</text>'
    if node.state in ("failed", "holding", "waiting"):
        yield f'<text class="state" x="{WIDTH - 12}" y="39">{escape(node.state)}</text>'
    if node.share >= 0.005:
        length = max(2, round((WIDTH - 16) * min(1.0, node.share)))
        yield f'<rect class="share" x="8" y="{HEIGHT - 4}" width="{length}" height="3" rx="1"/>'
    yield "</a>"
    if node.unfold:
        href, text = escape(node.unfold, quote=True), escape(f"Unfold {node.path}", quote=True)
        yield f'<a class="unfold" href="{href}" aria-label="{text}" data-soft="">'
        yield f'<circle cx="{WIDTH - 16}" cy="16" r="9"/>'
        yield f'<path d="M{WIDTH - 20} 16h8M{WIDTH - 16} 12v8"/></a>'
    yield "</g>"


def _curve(points: Sequence[tuple[int, int]]) -> str:
    """Return a path that leaves and reaches each point vertically."""
    (x, y), *others = points
    parts = [f"M{x} {y}"]
    for to_x, to_y in others:
        if to_x == x:
            parts.append(f"V{to_y}")
        else:
            middle = (y + to_y) // 2
            parts.append(f"C{x} {middle} {to_x} {middle} {to_x} {to_y}")
        x, y = to_x, to_y
    return "".join(parts)


def sparkline_svg(values: Sequence[float], label: str, width: int = 120, height: int = 28) -> str:
    """Draw a line of values at equal distances, the newest at the right end.

    Args:
        values: The values, none of which is negative.
        label: What the line shows, for screen readers.
        width: The width in pixels.
        height: The height in pixels.

    Returns:
        HTML. "": there are fewer than two values.
    """
    if len(values) < 2:
        return ""
    open_ = (
        f'<svg class="spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(label, quote=True)}" preserveAspectRatio="none">'
    )
    top = max(*values, 1e-9)
    step = width / (len(values) - 1)
    points = [
        f"{place * step:.1f} {height - 2 - (height - 4) * value / top:.1f}"
        for place, value in enumerate(values)
    ]
    line = "L".join(points)
    return (
        f'{open_}<path class="area" d="M0 {height}L{line}L{width} {height}z"/>'
        f'<path class="line" d="M{line}"/></svg>'
    )


def bars_svg(
    bars: Sequence[tuple[str, Sequence[float]]], parts: Sequence[str], height: int = 96
) -> str:
    """Draw bars next to each other, each in parts one above the other.

    Args:
        bars: The title of each bar, for people who point at it, and the sizes of its parts.
        parts: A class for each part, the lowest one first.
        height: The height of the highest bar in pixels.
    """
    width = 9
    top = max((sum(sizes) for _, sizes in bars), default=0.0) or 1.0
    parts_of_svg = [
        f'<svg class="bars" width="{len(bars) * (width + _BAR_GAP)}" height="{height}" role="img" '
        f'aria-label="How long the latest {len(bars)} epochs took">'
    ]
    for place, (title, sizes) in enumerate(bars):
        parts_of_svg.append(f"<g><title>{escape(title)}</title>")
        below = 0.0
        for name, size in zip(parts, sizes, strict=True):
            tall = (height - 2) * size / top
            y = height - below - tall
            parts_of_svg.append(
                f'<rect class="{escape(name)}" x="{place * (width + _BAR_GAP)}" y="{y:.1f}" '
                f'width="{width}" height="{tall:.1f}"/>'
            )
            below += tall
        parts_of_svg.append("</g>")
    return "".join([*parts_of_svg, "</svg>"])


def spans_svg(spans: Iterable[tuple[str, str, float, float]], width: int = 640) -> str:
    """Draw rows of bars over time, one below the other.

    Args:
        spans: The text of each row, a class, and where its bar begins and ends, from 0 to 1.
        width: The width in pixels.
    """
    rows = list(spans)
    tall = 24
    parts_of_svg = [
        f'<svg class="spans" viewBox="0 0 {width} {max(1, len(rows)) * tall}" '
        f'width="{width}" height="{max(1, len(rows)) * tall}" role="img" '
        f'aria-label="When each segment ran">'
    ]
    for place, (text, name, begin, end) in enumerate(rows):
        x, y = begin * width, place * tall
        length = max(3.0, (end - begin) * width)
        is_right = x + length + 8 * len(text) > width
        at = f'x="{x + 6:.0f}"' if not is_right or length > 8 * len(text) else 'x="6"'
        parts_of_svg.append(
            f'<g class="{escape(name)}"><title>{escape(text)}</title>'
            f'<rect x="{x:.1f}" y="{y + 3}" width="{length:.1f}" height="{tall - 6}" rx="4"/>'
            f'<text {at} y="{y + 16}">{escape(text)}</text></g>'
        )
    return "".join([*parts_of_svg, "</svg>"])


def progress_svg(fraction: float, label: str) -> str:
    """Draw how much is complete, from 0 to 1."""
    part = round(1_000 * max(0.0, min(1.0, fraction)))
    return (
        '<svg class="progress" viewBox="0 0 1000 8" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label, quote=True)}">'
        '<rect class="all" width="1000" height="8" rx="4"/>'
        f'<rect class="part" width="{part}" height="8" rx="4"/></svg>'
    )
