"""A pane of a side input from its file to what a worker looks up in an epoch."""

import contextlib
import functools
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.coders import BytesCoder, StrUtf8Coder, TupleCoder, VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import urns
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.writing import EncodingError
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.side_inputs.view_panes import PanesOfView
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import edge_of

PAIRS = TupleCoder([StrUtf8Coder(), VarIntCoder()])
WINDOW_CODER = IntervalWindowCoder()
CODER = WindowedValueCoder(PAIRS, WINDOW_CODER)
EARLY, LATE = IntervalWindow(0, 10), IntervalWindow(10, 20)


def edge(pattern: str, *, is_global: bool = False) -> Edge:
    return edge_of(Delivery.SIDE_INPUT, is_global=is_global, access_pattern=pattern)


def pane(
    window: object, *values: object, epoch: int = 1, part: bytes = b""
) -> tuple[object, WindowedValue]:
    in_epochs = ((epoch, value) for value in values)
    return (part, in_epochs), WindowedValue(None, Timestamp(9), (window,))


def panes_of(of: Edge, coder: WindowedValueCoder = CODER) -> PanesOfView:
    return PanesOfView(of, coder, max_element_bytes=1 << 30)


def _copy(target: Path, source: Path) -> None:
    shutil.copy(source, target)


def written(panes: PanesOfView, of: Edge, path: Path) -> EpochView:
    """Write each part to a file, whose name continues with a number unless there is one only."""
    files: dict[bytes, tuple[str, ...]] = {}
    with contextlib.closing(panes):
        for number, part in enumerate(sorted({place.part for place, _ in panes.last_panes()})):
            target = path.with_name(path.name + f"-{number}" * bool(number))
            panes.write(part, target.name, path.parent, functools.partial(_copy, target))
            for place, _ in panes.last_panes():
                if place.part == part:
                    files[place.window] = (*files.get(place.window, ()), str(target))
    return EpochView(of, "job", files, GatheredRows)


def found(view: EpochView, window: bytes, key: bytes | None) -> list[tuple[bytes, int]]:
    return list(view.values(window, key))


def test_a_view_has_the_last_pane_of_each_window(tmp_path: Path) -> None:
    of = edge(urns.SIDE_INPUT_ITERABLE)
    panes = panes_of(of)
    for value, origin in (pane(EARLY, ("a", 1), ("b", 2)), pane(LATE, ("a", 3)), pane(LATE)):
        panes.push([value], [origin])
    view = written(panes, of, tmp_path / "view")
    coded = b"".join(PAIRS.get_impl().encode_nested(pair) for pair in (("a", 1), ("b", 2)))
    assert found(view, WINDOW_CODER.encode(EARLY), None) == [(coded, 2)]
    assert found(view, WINDOW_CODER.encode(LATE), None) == []  # its last pane is empty


def test_a_view_of_a_multimap_has_all_values_of_a_key(tmp_path: Path) -> None:
    of = edge(urns.SIDE_INPUT_MULTIMAP)
    panes = panes_of(of)
    value, origin = pane(EARLY, ("a", 1), ("b", 2), ("a", 3))
    panes.push([value], [origin])
    view = written(panes, of, tmp_path / "view")
    window, encode = WINDOW_CODER.encode(EARLY), StrUtf8Coder().get_impl().encode_nested
    assert found(view, window, encode("a")) == [(b"\x01\x03", 2)]
    assert found(view, window, encode("c")) == []


def test_each_key_of_a_window_comes_once_from_all_parts(tmp_path: Path) -> None:
    """A part of an earlier epoch may have the key, too, if the job continued with fewer parts."""
    of = edge(urns.SIDE_INPUT_MULTIMAP)
    panes = panes_of(of)
    for value, origin in (
        pane(EARLY, ("a", 1), ("b", 2), ("a", 3), part=b"1"),
        pane(EARLY, ("b", 4), ("c", 5), part=b"2", epoch=2),
        pane(LATE, ("d", 6), part=b"2"),
    ):
        panes.push([value], [origin])
    view = written(panes, of, tmp_path / "view")
    encode = StrUtf8Coder().get_impl().encode_nested
    assert sorted(view.keys(WINDOW_CODER.encode(EARLY))) == [encode(key) for key in "abc"]
    assert list(view.keys(WINDOW_CODER.encode(LATE))) == [encode("d")]


def test_a_window_that_has_no_pane_is_empty() -> None:
    view = EpochView(edge(urns.SIDE_INPUT_MULTIMAP), "job", {}, GatheredRows)
    assert found(view, WINDOW_CODER.encode(EARLY), None) == []
    assert list(view.keys(WINDOW_CODER.encode(EARLY))) == []


def test_a_view_has_values_longer_than_a_row(tmp_path: Path) -> None:
    of = edge(urns.SIDE_INPUT_ITERABLE, is_global=True)
    panes = panes_of(of, WindowedValueCoder(StrUtf8Coder(), GlobalWindowCoder()))
    value, origin = pane(GlobalWindow(), "x" * 5_000_000)
    panes.push([value], [origin])
    view = written(panes, of, tmp_path / "view")
    ((coded, count),) = found(view, GlobalWindowCoder().encode(GlobalWindow()), None)
    assert (len(coded), count) == (5_000_000 + 4, 1)


@pytest.mark.parametrize("is_global", [True, False])
def test_the_id_of_a_view_changes_with_its_content(is_global: bool) -> None:
    """Beam keeps views that are in the global window beyond a bundle."""
    of = edge(urns.SIDE_INPUT_ITERABLE, is_global=is_global)
    one, same, other = (
        EpochView(of, "job", {b"w": (path,)}, GatheredRows) for path in ("a", "a", "b")
    )
    assert one.id == same.id != other.id
    assert one.id.startswith("job/")
    assert (one.cache_id != other.cache_id) is is_global


def decoded(view: EpochView, window: object, key: str | None = None) -> list[Any]:
    coded_key = None if key is None else StrUtf8Coder().get_impl().encode_nested(key)
    impl = PAIRS.get_impl() if key is None else VarIntCoder().get_impl()
    rows = found(view, WINDOW_CODER.encode(window), coded_key)
    values = [value for coded, _ in rows for value in impl.decode_all(coded)]
    assert len(values) == sum(count for _, count in rows)
    return values


@pytest.mark.parametrize("pattern", [urns.SIDE_INPUT_ITERABLE, urns.SIDE_INPUT_MULTIMAP])
def test_a_pane_replaces_the_one_before_it_in_its_part_only(tmp_path: Path, pattern: str) -> None:
    of = edge(pattern)
    panes = panes_of(of)
    for value, origin in (
        pane(EARLY, ("a", 1), part=b"one"),
        pane(EARLY, ("a", 2), part=b"other"),
        pane(LATE, ("a", 3), part=b"one"),
        pane(EARLY, ("a", 4), ("a", 5), part=b"one"),
    ):
        panes.push([value], [origin])
    key = "a" if pattern == urns.SIDE_INPUT_MULTIMAP else None
    view = written(panes, of, tmp_path / "view")
    assert len(list(tmp_path.iterdir())) == 2
    expected = [2, 4, 5] if key else [("a", number) for number in (2, 4, 5)]
    assert sorted(decoded(view, EARLY, key)) == expected
    assert decoded(view, LATE, key) == ([3] if key else [("a", 3)])


@pytest.mark.parametrize("pattern", [urns.SIDE_INPUT_ITERABLE, urns.SIDE_INPUT_MULTIMAP])
def test_values_come_epoch_by_epoch_from_all_parts(tmp_path: Path, pattern: str) -> None:
    of = edge(pattern)
    paths = []
    for part, epochs in enumerate(((1, 3, 3, 9), (2, 3, 8), (5,))):
        panes = panes_of(of)
        in_epochs = ((epoch, ("a", 10 * epoch + part)) for epoch in epochs)
        panes.push([(b"part", in_epochs)], [WindowedValue(None, Timestamp(9), (EARLY,))])
        paths.append(str(tmp_path / f"view {part}"))
        written(panes, of, Path(paths[-1]))
    view = EpochView(of, "job", {WINDOW_CODER.encode(EARLY): tuple(paths)}, GatheredRows)
    key = "a" if pattern == urns.SIDE_INPUT_MULTIMAP else None
    values = [value if key else value[1] for value in decoded(view, EARLY, key)]
    assert values == [10, 21, 30, 30, 31, 52, 81, 90]


def test_a_pane_larger_than_memory(tmp_path: Path) -> None:
    """Neither its values nor their rows are in memory together."""
    of = edge(urns.SIDE_INPUT_ITERABLE)
    panes = panes_of(of, WindowedValueCoder(BytesCoder(), WINDOW_CODER))
    size, count = 1 << 16, 4_000

    def values() -> Iterator[tuple[int, bytes]]:
        for number in range(count):
            yield number // 100, number.to_bytes(2, "big") * (size // 2)

    tracemalloc.start()
    try:
        panes.push([(b"", values())], [WindowedValue(None, Timestamp(9), (EARLY,))])
        view = written(panes, of, tmp_path / "view")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size * count / 4
    counts = [rows for _, rows in view.values(WINDOW_CODER.encode(EARLY), None)]
    assert sum(counts) == count


def test_an_element_that_is_too_long_is_refused(tmp_path: Path) -> None:
    of = edge(urns.SIDE_INPUT_ITERABLE)
    panes = PanesOfView(of, CODER, max_element_bytes=1_000)
    value, origin = pane(EARLY, ("x" * 2_000, 1))
    with contextlib.closing(panes):
        panes.push([value], [origin])
        with pytest.raises(EncodingError, match=r"exceeds the limit of 1000"):
            panes.write(b"", "view", tmp_path, lambda path: None)
