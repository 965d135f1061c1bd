"""A pane of a side input from its file to what a worker looks up in an epoch."""

import shutil
from pathlib import Path

import pytest
from apache_beam.coders import StrUtf8Coder, TupleCoder, VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import urns
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.spark.program import Edge
from beam_spark_runner.spark.side_inputs.lookup import GatheredRows
from beam_spark_runner.spark.side_inputs.views import EpochView, PanesOfView
from tests.unit.spark.rows.written_rows import edge_of

PAIRS = TupleCoder([StrUtf8Coder(), VarIntCoder()])
WINDOW_CODER = IntervalWindowCoder()
CODER = WindowedValueCoder(PAIRS, WINDOW_CODER)
EARLY, LATE = IntervalWindow(0, 10), IntervalWindow(10, 20)


def edge(pattern: str, *, is_global: bool = False) -> Edge:
    return edge_of(Delivery.SIDE_INPUT, is_global=is_global, access_pattern=pattern)


def pane(window: object, *values: object) -> tuple[object, WindowedValue]:
    return (b"", values), WindowedValue(None, Timestamp(9), (window,))


def written(panes: PanesOfView, of: Edge, path: Path) -> EpochView:
    def put(source: Path) -> None:
        shutil.copy(source, path)

    panes.write(of, put, most_element_bytes=1 << 30)
    return EpochView(of, "job", {window: str(path) for window, _ in panes.windows()}, GatheredRows)


def found(view: EpochView, window: bytes, key: bytes | None) -> list[tuple[bytes, int]]:
    return list(view.values(window, key))


def test_all_values_of_a_window(tmp_path: Path) -> None:
    panes = PanesOfView(CODER)
    for value, origin in (pane(EARLY, ("a", 1), ("b", 2)), pane(LATE, ("a", 3)), pane(LATE)):
        panes.push([value], [origin])
    view = written(panes, edge(urns.SIDE_INPUT_ITERABLE), tmp_path / "view")
    coded = b"".join(PAIRS.get_impl().encode_nested(pair) for pair in (("a", 1), ("b", 2)))
    assert found(view, WINDOW_CODER.encode(EARLY), None) == [(coded, 2)]
    assert found(view, WINDOW_CODER.encode(LATE), None) == []  # its last pane is empty


def test_the_values_of_a_key(tmp_path: Path) -> None:
    panes = PanesOfView(CODER)
    value, origin = pane(EARLY, ("a", 1), ("b", 2), ("a", 3))
    panes.push([value], [origin])
    view = written(panes, edge(urns.SIDE_INPUT_MULTIMAP), tmp_path / "view")
    window, encode = WINDOW_CODER.encode(EARLY), StrUtf8Coder().get_impl().encode_nested
    assert found(view, window, encode("a")) == [(b"\x01\x03", 2)]
    assert found(view, window, encode("c")) == []


def test_a_window_that_has_no_pane_is_empty() -> None:
    view = EpochView(edge(urns.SIDE_INPUT_ITERABLE), "job", {}, GatheredRows)
    assert found(view, WINDOW_CODER.encode(EARLY), None) == []


def test_long_values(tmp_path: Path) -> None:
    panes = PanesOfView(WindowedValueCoder(StrUtf8Coder(), GlobalWindowCoder()))
    value, origin = pane(GlobalWindow(), "x" * 5_000_000)
    panes.push([value], [origin])
    view = written(panes, edge(urns.SIDE_INPUT_ITERABLE, is_global=True), tmp_path / "view")
    ((coded, count),) = found(view, GlobalWindowCoder().encode(GlobalWindow()), None)
    assert (len(coded), count) == (5_000_000 + 4, 1)


@pytest.mark.parametrize("is_global", [True, False])
def test_its_name_changes_with_its_content(is_global: bool) -> None:
    """Beam keeps views that are in the global window beyond a bundle."""
    of = edge(urns.SIDE_INPUT_ITERABLE, is_global=is_global)
    one, same, other = (
        EpochView(of, "job", {b"w": path}, GatheredRows) for path in ("a", "a", "b")
    )
    assert one.id == same.id != other.id
    assert one.id.startswith("job/")
    assert (one.kept_as != other.kept_as) is is_global
