"""A side input from its writer to what a worker finds, without Spark."""

import itertools
import random
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import (
    BytesCoder,
    TupleCoder,
    VarIntCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder, SingletonCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import routing, urns
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import Edge, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import MarkReader
from beam_spark_runner.engine.shared_file import MountedFile
from beam_spark_runner.engine.side_inputs import files
from beam_spark_runner.engine.side_inputs import lookup as lookups
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.task.task import LevelTask
from beam_spark_runner.harness.beam.side_input_cache import DecodedCache
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.runner import SparkPortableRunner
from tests.compiled import compile_pipeline
from tests.unit.engine.rows.written_rows import LIMIT, as_spark_would, edge_of, written

PAIRS = TupleCoder([BytesCoder(), BytesCoder()])
EARLY, LATE, NEVER = IntervalWindow(0, 10), IntervalWindow(5, 15), IntervalWindow(20, 30)


def edge_to_side_input(*, is_multimap: bool, is_global: bool = False) -> Edge:
    pattern = urns.SIDE_INPUT_MULTIMAP if is_multimap else urns.SIDE_INPUT_ITERABLE
    return edge_of(Delivery.SIDE_INPUT, is_global=is_global, access_pattern=pattern)


def file_of(edge: Edge, batches: Sequence[pa.RecordBatch], *, is_sorted: bool = False) -> bytes:
    """Let some task write the rows, which come in any order, to one file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows")
        writer = files.SortedWriter(str(path), is_sorted=is_sorted)
        found = as_spark_would(edge, batches, random.Random(2))
        for dest, batch in files.whole_rows(found, MarkReader()):
            assert dest == edge.dest
            writer.add(batch)
        writer.close()
        return path.read_bytes()


def rows_of(edge: Edge, **source: Any) -> GatheredRows:
    return GatheredRows(SideInputRows(id="job/7", code=edge.code, **source))


def gathered(edge: Edge, coder: Any, elements: Sequence[WindowedValue]) -> GatheredRows:
    return rows_of(edge, inline=file_of(edge, written(edge, coder, elements)))


def values(rows: GatheredRows, coder: Any, window: bytes, key: bytes | None = None) -> list[Any]:
    return list(DecodedCache().values(rows, window, key, coder.get_impl()))


@pytest.mark.parametrize("batch_bytes", [1, 200, 4 << 20])
@pytest.mark.parametrize("is_multimap", [True, False], ids=["multimap", "iterable"])
def test_side_inputs_are_found_by_window_and_key(
    is_multimap: bool, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH_BYTES", batch_bytes)
    edge = edge_to_side_input(is_multimap=is_multimap)
    elements = [
        WindowedValue((b"k", b"1"), Timestamp(1), (EARLY,)),
        WindowedValue((b"k", b"2" * LIMIT * 3), Timestamp(6), (EARLY, LATE)),
        WindowedValue((b"", b""), Timestamp(6), (LATE,)),
    ]
    rows = gathered(edge, WindowedValueCoder(PAIRS, IntervalWindowCoder()), elements)

    def found(window: Any, key: bytes) -> list[bytes]:
        coded = IntervalWindowCoder().encode(window)
        if not is_multimap:
            return sorted(values(rows, PAIRS, coded))
        return sorted(values(rows, BytesCoder(), coded, BytesCoder().get_impl().encode_nested(key)))

    def some(*elements: WindowedValue) -> list[bytes]:
        return sorted(each.value[1] if is_multimap else each.value for each in elements)

    first, second, third = elements
    assert found(EARLY, b"k") == some(first, second)
    assert found(LATE, b"k") == (some(second) if is_multimap else some(second, third))
    assert found(LATE, b"") == (some(third) if is_multimap else some(second, third))
    assert found(NEVER, b"k") == []
    assert found(EARLY, b"z") == ([] if is_multimap else some(first, second))


@pytest.mark.parametrize("batch_bytes", [1, 200, 4 << 20])
@pytest.mark.parametrize("collide", [False, True], ids=["hashes", "one hash"])
def test_each_key_of_a_window_is_found_once(
    collide: bool, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH_BYTES", batch_bytes)
    if collide:
        monkeypatch.setattr(
            routing, "routes_of_keys", lambda keys, count, code: np.zeros(count, np.int64)
        )
    edge = edge_to_side_input(is_multimap=True)
    elements = [
        WindowedValue(
            (b"%d" % (n % 7), b"v" * n), Timestamp(1), (EARLY, LATE) if n < 99 else (LATE,)
        )
        for n in range(100)
    ] + [WindowedValue((b"late", b""), Timestamp(6), (LATE,))]
    coder = WindowedValueCoder(PAIRS, IntervalWindowCoder())
    halves = [
        file_of(edge, written(edge, coder, some, limit=300))
        for some in (elements[:50], elements[50:])
    ]
    with TemporaryDirectory() as folder:
        for number, half in enumerate(halves):
            Path(folder, str(number)).write_bytes(half)
        rows = rows_of(edge, files=tuple(MountedFile(str(Path(folder, str(n)))) for n in range(2)))
        encode = BytesCoder().get_impl().encode_nested
        early = [encode(b"%d" % n) for n in range(7)]
        for window, keys in ((EARLY, early), (LATE, [*early, encode(b"late")]), (NEVER, [])):
            found = list(rows.keys(IntervalWindowCoder().encode(window)))
            assert sorted(found) == sorted(keys)
            assert list(rows.keys(IntervalWindowCoder().encode(window))) == found


def test_values_of_one_key_share_rows() -> None:
    edge = edge_to_side_input(is_multimap=True)
    coder = WindowedValueCoder(PAIRS, IntervalWindowCoder())
    elements = [
        WindowedValue((b"%d" % (n % 3), b"%d" % n), Timestamp(1), (EARLY,)) for n in range(300)
    ]
    batches = written(edge, coder, elements, limit=1 << 20)
    assert sum(len(batch) for batch in batches) == 3
    many = written(edge, coder, elements, limit=100)
    assert 3 < sum(len(batch) for batch in many) < 100
    coded = IntervalWindowCoder().encode(EARLY)
    for found in (batches, many):
        rows = rows_of(edge, inline=file_of(edge, found))
        for key in range(3):
            nested = BytesCoder().get_impl().encode_nested(b"%d" % key)
            assert sorted(values(rows, BytesCoder(), coded, nested)) == sorted(
                b"%d" % n for n in range(key, 300, 3)
            )


def test_values_without_bytes_are_counted() -> None:
    edge = edge_to_side_input(is_multimap=False, is_global=True)
    nothing = SingletonCoder(None)
    coder = WindowedValueCoder(nothing, GlobalWindowCoder())
    elements = [WindowedValue(None, Timestamp(1), (GlobalWindow(),))] * 5
    rows = gathered(edge, coder, elements)
    assert values(rows, nothing, GlobalWindowCoder().encode(GlobalWindow())) == [None] * 5


def test_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "routes_of_keys", lambda keys, count, code: pa.array([7] * count))
    monkeypatch.setattr(routing, "route_of_key", lambda key, code: 7)
    edge = edge_to_side_input(is_multimap=True)
    coder = WindowedValueCoder(PAIRS, IntervalWindowCoder())
    elements = [
        WindowedValue((b"%d" % (n % 3), b"%d" % n), Timestamp(1), (EARLY,)) for n in range(30)
    ]
    rows = gathered(edge, coder, elements)
    coded = IntervalWindowCoder().encode(EARLY)
    nested = BytesCoder().get_impl().encode_nested(b"2")
    assert sorted(values(rows, BytesCoder(), coded, nested)) == sorted(
        b"%d" % n for n in range(2, 30, 3)
    )


@pytest.mark.parametrize("resident_bytes", [1, 1 << 30], ids=["let go at once", "kept"])
def test_lookups_map_files_and_release_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resident_bytes: int
) -> None:
    monkeypatch.setattr(lookups, "RESIDENT_BYTES", resident_bytes)
    edge = edge_to_side_input(is_multimap=False, is_global=True)
    numbers = VarIntCoder()
    coder = WindowedValueCoder(numbers, GlobalWindowCoder())
    paths = []
    for part in range(3):
        elements = [WindowedValue(n, Timestamp(0), (GlobalWindow(),)) for n in range(part, 3000, 3)]
        path = tmp_path / f"{part}.arrow"
        path.write_bytes(file_of(edge, written(edge, coder, elements)))
        paths.append(str(path))
    rows = rows_of(edge, files=tuple(MountedFile(path) for path in paths))
    window = GlobalWindowCoder().encode(GlobalWindow())
    for _ in range(2):
        assert sorted(values(rows, numbers, window)) == list(range(3000))
    assert values(rows_of(edge), numbers, window) == []


class _Counted:
    """A lookup of two numbers per key, which counts how often it is asked."""

    def __init__(self, id_: str = "job/1", size: int = 2) -> None:
        self.id = id_
        self.asked = 0
        self._size = size

    def values(self, window: bytes, key: bytes | None) -> Any:
        self.asked += 1
        coder = VarIntCoder()
        yield b"".join(coder.get_impl().encode_nested(n) for n in range(self._size)), self._size


def test_decoded_values_are_kept_up_to_a_limit() -> None:
    cache, lookup = DecodedCache(), _Counted()
    coder = VarIntCoder().get_impl()

    def read(key: bytes) -> None:
        assert list(cache.values(lookup, b"w", key, coder)) == [0, 1]

    read(b"a")
    read(b"a")
    assert lookup.asked == 2  # nothing is kept before there is a limit
    cache.limit(1200)
    for _ in range(3):
        read(b"a")
    assert lookup.asked == 3
    read(b"b")
    read(b"a")
    assert lookup.asked == 4
    read(b"c")  # there is room for two: b has not been used for longest
    read(b"a")
    assert lookup.asked == 5
    read(b"b")
    assert lookup.asked == 6
    cache.limit(500)
    read(b"b")
    assert lookup.asked == 6
    cache.forget("other")
    read(b"b")
    assert lookup.asked == 6
    cache.forget("job")
    read(b"b")
    assert lookup.asked == 7


def test_a_job_may_end_while_a_task_of_another_one_reads() -> None:
    cache, coder = DecodedCache(), VarIntCoder().get_impl()
    cache.limit(1 << 20)
    failed: list[BaseException] = []

    def end_jobs() -> None:
        try:
            for _ in range(20_000):
                cache.forget("other")
        except BaseException as error:
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=end_jobs)
    thread.start()
    try:
        for number in itertools.takewhile(lambda _: thread.is_alive(), itertools.count()):
            lookup = _Counted(f"job/{number}")
            assert list(cache.values(lookup, b"w", b"key", coder)) == [0, 1]
    finally:
        thread.join()
        sys.setswitchinterval(interval)
    assert not failed


def test_what_is_not_read_to_the_end_or_too_large_is_not_kept() -> None:
    cache, lookup, long = DecodedCache(), _Counted(), _Counted("job/2", 100_000)
    coder = VarIntCoder().get_impl()
    cache.limit(1 << 20)
    assert next(cache.values(lookup, b"w", None, coder)) == 0
    assert next(cache.values(lookup, b"w", None, coder)) == 0
    assert lookup.asked == 2
    for _ in range(2):
        assert sum(1 for _ in cache.values(long, b"w", None, coder)) == 100_000
    assert long.asked == 2


def test_a_side_input_that_was_made_again_is_read_again() -> None:
    """The steps of a stage keep views, so the stage must not be kept."""

    def build(pipeline: beam.Pipeline) -> None:
        side = pipeline | "side" >> beam.Impulse()
        main = pipeline | beam.Impulse() | beam.Map(lambda _, one: one, AsSingleton(side))
        main | beam.Reshuffle() | beam.Map(len)

    pipeline = beam.Pipeline()
    build(pipeline)
    environment = SparkPortableRunner().default_environment(PipelineOptions())
    plan = compile_pipeline(pipeline.to_runner_api(default_environment=environment))
    limits = Limits(max_attempts=1, row_limit_bytes=LIMIT, max_element_bytes=LIMIT, cache_bytes=0)
    builder = ProgramBuilder(plan, "job", limits)
    segment = plan.segments[1]
    (dest,) = segment.side_inputs
    edge = builder.edges[dest]
    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    start = schema.batch_of(int(segment.impulses[0]), np.zeros(1, np.int64), None, None, [b""])

    def seen(version: int) -> bool:
        value = b"version %d" % version
        written_rows = written(edge, coder, [WindowedValue(value, 0, (GlobalWindow(),))])
        source = SideInputRows(
            id=f"job/1/{version}", code=edge.code, inline=file_of(edge, written_rows)
        )
        task = LevelTask(
            builder.level(segment, 0, 2, {dest: source}, job=range(1), round_budget_s=None)
        )
        made = [schema.block_of(batch).values for batch in task.run(iter([start]))]
        return any(value in each for values in made for each in values)

    assert seen(1)
    assert seen(1)
    assert seen(2)
