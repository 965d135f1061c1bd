"""Folds the steps of a pipeline into the composites that its user has applied."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from beam_spark_runner.observing.step_graph import EdgeKind, StepGraph

_OPENING, _CLOSING = "([<{", ")]>}"
# An exchange matters more to a reader than an edge within a task.
_WEIGHTS = {EdgeKind.POINTWISE: 0, EdgeKind.SIDE_INPUT: 1, EdgeKind.EXCHANGE: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedNode:
    """A step, or a composite with its steps.

    Attributes:
        path: Its full name.
        members: The positions of its steps in the graph.
        is_composite: Whether it can be unfolded.
    """

    path: str
    members: tuple[int, ...]
    is_composite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedEdge:
    """What moves from one node to another.

    Attributes:
        source, target: The paths of the nodes.
        collections: The ids of the collections.
        kind: How they move: if in several ways, the one that costs most.
    """

    source: str
    target: str
    collections: tuple[str, ...]
    kind: EdgeKind


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """Nodes in topological order of their first steps, and edges."""

    nodes: tuple[FoldedNode, ...] = ()
    edges: tuple[FoldedEdge, ...] = ()


def fold(graph: StepGraph, unfolded: Container[str] = ()) -> FoldedGraph:
    """Fold steps into their outermost composites, except into those that are unfolded.

    Example:
        Read/Impulse -> Read/Split -> Count/Group -> Count/Sum, with "Count" unfolded
        ==>  Read -> Count/Group -> Count/Sum

    Args:
        graph: The steps.
        unfolded: The paths of composites of which the parts are shown.
    """
    names = [node.name for node in graph.nodes]
    if isinstance(unfolded, Iterable):
        unfolded = {inside for path in unfolded for inside in _with_only_children(path, names)}
    paths = {node.id: _path(node.name, unfolded) for node in graph.nodes}
    members: dict[str, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        members.setdefault(paths[node.id], []).append(position)
    nodes = tuple(
        FoldedNode(
            path=path,
            members=tuple(positions),
            is_composite=any(graph.nodes[each].name != path for each in positions),
        )
        for path, positions in members.items()
    )
    edges: dict[tuple[str, str], FoldedEdge] = {}
    for edge in graph.edges:
        ends = paths[edge.producer], paths[edge.consumer]
        if ends[0] == ends[1]:
            continue
        previous = edges.get(ends)
        kinds = [edge.kind] if previous is None else [edge.kind, previous.kind]
        collections = () if previous is None else previous.collections
        if edge.collection not in collections:
            collections = (*collections, edge.collection)
        kind = max(kinds, key=lambda each: _WEIGHTS[each])
        edges[ends] = FoldedEdge(source=ends[0], target=ends[1], collections=collections, kind=kind)
    return FoldedGraph(nodes, tuple(edges.values()))


def ancestors(path: str) -> list[str]:
    """Return the paths of all composites around a step, the outermost first.

    Example:
        >>> ancestors("Read/Map(<lambda at a/b.py:3>)/Do")
        ['Read', 'Read/Map(<lambda at a/b.py:3>)']
    """
    paths, depth = [], 0
    for position, character in enumerate(path):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(0, depth - 1)
        elif character == "/" and depth == 0 and position:
            paths.append(path[:position])
    return paths


def _with_only_children(path: str, names: Sequence[str]) -> Iterator[str]:
    """Yield a composite, and the composite that is all of it, and so on."""
    inside = [name for name in names if name.startswith(f"{path}/")]
    while inside:
        yield path
        parts = {
            next((ancestor for ancestor in ancestors(name) if len(ancestor) > len(path)), name)
            for name in inside
        }
        if len(parts) > 1 or inside == [*parts]:
            return
        (path,) = parts


def _path(name: str, unfolded: Container[str]) -> str:
    return next((ancestor for ancestor in ancestors(name) if ancestor not in unfolded), name)
