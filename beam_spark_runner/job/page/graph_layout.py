"""Places the nodes of a graph in layers, and the edges between them. Pure arithmetic.

The method is that of Sugiyama: each node is one layer below the lowest node that it reads from,
nodes of a layer are put in the order of their neighbours, and then moved towards these. An edge
over several layers has a place in each of them, so that it does not run through nodes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 216, 52
"""The size of a node."""
_GAP_X, _GAP_Y = 28, 44
_PASSING = 24  # the width of an edge that passes a layer
_SWEEPS = 6
_MARGIN = 12
_MAX_PASSING = 4_000  # places of edges in layers: beyond, edges run through nodes


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is, in pixels.

    Attributes:
        width, height: The size of the picture.
        nodes: The upper left corner of each node.
        edges: The points of each edge, from the lower edge of its source to the upper edge of its
            target.
    """

    width: int
    height: int
    nodes: Mapping[str, tuple[int, int]]
    edges: Mapping[tuple[str, str], tuple[tuple[int, int], ...]]


def lay_out(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """Place nodes and edges.

    Args:
        nodes: The names of the nodes; an edge to an earlier one is drawn, but not obeyed.
        edges: Pairs of source and target, each once.
    """
    layers_of = _layers(nodes, edges)
    layers, chains = _with_passing(nodes, edges, layers_of)
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    above: dict[Hashable, list[Hashable]] = {}
    below: dict[Hashable, list[Hashable]] = {}
    for upper, lower in links:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    _order(layers, above, below)
    centres = _centres(layers, above, below)
    leftmost = min(
        (centres[node] - _width(node) / 2 for layer in layers for node in layer), default=0.0
    )
    shift = _MARGIN - leftmost
    rightmost = max(
        (centres[node] + _width(node) / 2 for layer in layers for node in layer), default=0.0
    )

    def point(node: Hashable, depth: int, down: int) -> tuple[int, int]:
        return round(centres[node] + shift), _MARGIN + depth * (HEIGHT + _GAP_Y) + down

    corners = {
        name: (point(name, layers_of[name], 0)[0] - WIDTH // 2, point(name, layers_of[name], 0)[1])
        for name in nodes
    }
    lines = {}
    for (source, target), chain in chains.items():
        first, last = layers_of[source], layers_of[target]
        points = [point(source, first, HEIGHT)]
        for depth, node in enumerate(chain[1:-1], first + 1):
            points += [point(node, depth, 0), point(node, depth, HEIGHT)]
        points.append(point(target, last, 0))
        lines[source, target] = tuple(points)
    return Layout(
        width=round(rightmost + shift) + _MARGIN,
        height=2 * _MARGIN + len(layers) * (HEIGHT + _GAP_Y) - (_GAP_Y if layers else 0),
        nodes=corners,
        edges=lines,
    )


def _layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    order = {name: position for position, name in enumerate(nodes)}
    sources: dict[str, list[str]] = {}
    for source, target in edges:
        if order[source] < order[target]:
            sources.setdefault(target, []).append(source)
    layers: dict[str, int] = {}
    for name in nodes:
        layers[name] = max((layers[source] + 1 for source in sources.get(name, ())), default=0)
    # What only starts something is placed next to it, not at the top.
    lowest: dict[str, int] = {}
    for source, target in edges:
        if order[source] < order[target]:
            lowest[source] = min(lowest.get(source, layers[target]), layers[target])
    for name in nodes:
        if name not in sources and name in lowest:
            layers[name] = max(layers[name], lowest[name] - 1)
    return layers


def _with_passing(
    nodes: Sequence[str], edges: Sequence[tuple[str, str]], layers_of: Mapping[str, int]
) -> tuple[list[list[Hashable]], dict[tuple[str, str], list[Hashable]]]:
    """Return the layers, with a place for each edge that passes them, and the chains of edges."""
    layers: list[list[Hashable]] = [[] for _ in range(max(layers_of.values(), default=-1) + 1)]
    for name in nodes:
        layers[layers_of[name]].append(name)
    passing = sum(max(0, layers_of[target] - layers_of[source] - 1) for source, target in edges)
    chains: dict[tuple[str, str], list[Hashable]] = {}
    for source, target in edges:
        chain: list[Hashable] = [source]
        if passing <= _MAX_PASSING:
            for depth in range(layers_of[source] + 1, layers_of[target]):
                place = (source, target, depth)
                layers[depth].append(place)
                chain.append(place)
        chains[source, target] = [*chain, target]
    return layers, chains


_Neighbours = Mapping[Hashable, Sequence[Hashable]]


def _order(layers: list[list[Hashable]], above: _Neighbours, below: _Neighbours) -> None:
    """Sort each layer by the mean position of the neighbours, down and up again."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for depth in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            neighbour_layer = layers[depth - 1 if down else depth + 1]
            position = {node: place for place, node in enumerate(neighbour_layer)}
            current = {node: place for place, node in enumerate(layers[depth])}

            def key(
                node: Hashable,
                position: Mapping[Hashable, int] = position,
                current: Mapping[Hashable, int] = current,
                neighbours: _Neighbours = neighbours,
            ) -> tuple[float, int]:
                places = [position[near] for near in neighbours.get(node, ()) if near in position]
                mean = sum(places) / len(places) if places else float(current[node])
                return mean, current[node]

            layers[depth].sort(key=key)


def _centres(
    layers: list[list[Hashable]], above: _Neighbours, below: _Neighbours
) -> dict[Hashable, float]:
    centres: dict[Hashable, float] = {}
    for layer in layers:
        x = 0.0
        for node in layer:
            x += _width(node) / 2
            centres[node] = x
            x += _width(node) / 2 + _GAP_X
        middle = (x - _GAP_X) / 2
        for node in layer:
            centres[node] -= middle
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for layer in layers if down else reversed(layers):
            targets = [
                sum(centres[near] for near in near_ones) / len(near_ones)
                if (near_ones := neighbours.get(node))
                else centres[node]
                for node in layer
            ]
            for node, x in zip(layer, _without_overlaps(layer, targets), strict=True):
                centres[node] = x
    return centres


def _without_overlaps(layer: Sequence[Hashable], targets: Sequence[float]) -> list[float]:
    """Return positions near the wanted ones at which the nodes of a layer do not overlap."""
    gaps = [(_width(one) + _width(other)) / 2 + _GAP_X for one, other in pairwise(layer)]
    from_left, from_right = list(targets), list(targets)
    for place, gap in enumerate(gaps, 1):
        from_left[place] = max(from_left[place], from_left[place - 1] + gap)
    for place in range(len(layer) - 2, -1, -1):
        from_right[place] = min(from_right[place], from_right[place + 1] - gaps[place])
    # Both keep the distances, and so does their mean.
    return [(one + other) / 2 for one, other in zip(from_left, from_right, strict=True)]


def _width(node: Hashable) -> int:
    return WIDTH if isinstance(node, str) else _PASSING
