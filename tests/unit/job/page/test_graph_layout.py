"""Where the nodes and edges of a graph are: ``graph_layouts.txt`` has a case for each rule.

A case has its edges, a line, and what is drawn. ``WRITE_LAYOUTS=1 pytest …`` writes the latter
again, to be looked at.
"""

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.job.page.graph_layout import HEIGHT, WIDTH, Layout, lay_out

_FILE = Path(__file__).with_name("graph_layouts.txt")


class Case(NamedTuple):
    """One case of the file."""

    title: str
    edges: str
    drawn: str


def cases() -> Iterator[Case]:
    for part in re.split(r"^# title: ", _FILE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        edges, _, drawn = rest.partition("\n---\n")
        yield Case(title, edges.strip(), drawn.strip())


def shown(text: str) -> str:
    """Lay out the edges of a text, and describe the result."""
    found = layout(text)
    lines = [f"size {found.width} x {found.height}"]
    lines += [f"{name} at {x} {y}" for name, (x, y) in found.nodes.items()]
    for (source, target), points in found.edges.items():
        lines.append(f"{source} -> {target}: " + ", ".join(f"{x} {y}" for x, y in points))
    return "\n".join(lines)


def layout(text: str) -> Layout:
    edges = [tuple(line.split(" -> ")) for line in text.splitlines() if " -> " in line]
    names = dict.fromkeys(name for line in text.splitlines() for name in line.split(" -> "))
    return lay_out([*names], [(source, target) for source, target in edges])


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case.title)
def test_graphs_are_laid_out_as_drawn(case: Case) -> None:
    if os.environ.get("WRITE_LAYOUTS"):
        pytest.skip("they are being written")
    assert shown(case.edges) == case.drawn


def test_layouts_are_written_if_that_is_asked_for() -> None:
    if not os.environ.get("WRITE_LAYOUTS"):
        return
    texts = [f"# title: {each.title}\n{each.edges}\n---\n{shown(each.edges)}\n" for each in cases()]
    _FILE.write_text("\n".join(texts))


def test_an_empty_graph_can_be_laid_out() -> None:
    assert lay_out([], []).nodes == {}


@given(
    st.integers(1, 25).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=60),
        )
    )
)
def test_nodes_never_overlap_and_are_inside(given_: tuple[int, set[tuple[int, int]]]) -> None:
    count, pairs = given_
    names = [str(number) for number in range(count)]
    edges = [(str(source), str(target)) for source, target in sorted(pairs) if source != target]
    found = lay_out(names, edges)
    places = sorted((y, x) for x, y in found.nodes.values())
    for (y, x), (other_y, other_x) in pairwise(places):
        assert y != other_y or other_x - x >= WIDTH
    for x, y in found.nodes.values():
        assert 0 <= x <= found.width - WIDTH
        assert 0 <= y <= found.height - HEIGHT
    assert set(found.edges) == set(edges)
    for (source, target), points in found.edges.items():
        assert points[0][1] == found.nodes[source][1] + HEIGHT
        assert points[-1][1] == found.nodes[target][1]


def test_a_thousand_steps_take_little_time() -> None:
    names = [str(number) for number in range(1_000)]
    edges = [(str(number), str(number + 1)) for number in range(999)]
    edges += [(str(number), str(number + 40)) for number in range(0, 900, 7)]
    found = lay_out(names, edges)
    assert len(found.nodes) == 1_000
