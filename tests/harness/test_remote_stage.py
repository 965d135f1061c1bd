"""Stages on Beam's own SDK harness, which runs in threads of this process."""

import itertools
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, create

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.harness.values.spilled_group import StreamedValues, ValueLogs
from beam_spark_runner.state.stored_deltas import ShardStorageError
from tests.harness.conftest import BARE, Collected, run_bundle, stage_on

pytestmark = pytest.mark.grpc


class Opaque:
    """Has a separate coder, which the runner need not know."""

    def __init__(self, number: int) -> None:
        self.number = number


class OpaqueCoder(beam.coders.Coder):  # type: ignore[misc]
    def encode(self, value: Opaque) -> bytes:
        return b"<%d>" % value.number

    def decode(self, coded: bytes) -> Opaque:
        return Opaque(int(coded[1:-1]))

    def is_deterministic(self) -> bool:
        return True


beam.coders.registry.register_coder(Opaque, OpaqueCoder)


def test_elements_are_bytes_to_the_runner(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        make = beam.Map(lambda x: Opaque(len(x))).with_output_types(Opaque)
        add = beam.Map(lambda x: Opaque(x.number + 1)).with_output_types(Opaque)
        return p | beam.Impulse() | make | beam.Reshuffle() | add | "out" >> beam.Reshuffle()

    assert run_bundle(stage_on(beam_pool, build), [b"123"]).values == [b"<3>"]
    assert run_bundle(stage_on(beam_pool, build, stage=1), [b"<3>"]).values == [b"<4>"]


def test_keys_and_values_are_told_apart(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        pair = beam.Map(lambda x: (Opaque(len(x)), x)).with_output_types(tuple[Opaque, bytes])
        return p | beam.Impulse() | pair | beam.GroupByKey()

    (element,) = run_bundle(stage_on(beam_pool, build), [b"abc"]).elements
    assert element.value == (b"<3>", b"abc")
    assert element.windows == (GlobalWindow(),)
    assert element.timestamp == MIN_TIMESTAMP


def test_timestamps_and_windows_cross_both_ways(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        see = beam.Map(
            lambda x, t=beam.DoFn.TimestampParam, w=beam.DoFn.WindowParam: (x, (t, w.end))
        )
        rows = p | beam.Impulse() | beam.WindowInto(FixedWindows(10)) | beam.Reshuffle()
        return rows | see | beam.GroupByKey()

    stage = stage_on(beam_pool, build, stage=1)
    origin = create(None, Timestamp(13).micros, (IntervalWindow(10, 20),), PANE_INFO_UNKNOWN)
    (element,) = run_bundle(stage, [b"x"], [origin]).elements
    assert element.timestamp == Timestamp(13)
    assert element.windows == (IntervalWindow(10, 20),)


def test_bundles_follow_each_other_and_run_side_by_side(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        return (
            p
            | beam.Impulse()
            | beam.FlatMap(lambda x: [x, x]).with_output_types(bytes)
            | beam.Reshuffle()
        )

    stage = stage_on(beam_pool, build)
    first, second = Collected(), Collected()
    one = stage.start_bundle(dict.fromkeys(stage.output_coders, first), {})
    two = stage.start_bundle(dict.fromkeys(stage.output_coders, second), {})
    one.push([b"1"], [BARE])
    two.push([b"2"], [BARE])
    two.finish()
    one.finish()
    assert len(first.values) == len(second.values) == 2
    assert first.values != second.values
    assert len(run_bundle(stage, [b"3"] * 1000).values) == 2000


def test_a_group_too_large_for_a_list_is_read_from_the_state(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        return (
            p
            | beam.Impulse()
            | beam.Map(lambda x: (x, x))
            | beam.GroupByKey()
            | beam.Map(lambda kv: (kv[0], sum(map(len, kv[1])), sum(1 for _ in kv[1])))
            | beam.Map(lambda each: b"%r" % (each,)).with_output_types(bytes)
            | beam.Reshuffle()
        )

    stage = stage_on(beam_pool, build, stage=1)
    count, size = 3000, 1000
    logs = ValueLogs()
    values = StreamedValues(logs.new(), bytes, [b"v" * size] * count)
    collected = run_bundle(stage, [(b"k", values), (b"k2", [b"12", b"3"])])
    assert collected.values == [
        b"(b'k', %d, %d)" % (count * size, count),
        b"(b'k2', 3, 2)",
    ]


def test_elements_larger_than_a_grpc_message_by_default(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        return (
            p
            | beam.Impulse()
            | beam.Map(lambda x: x + b"!").with_output_types(bytes)
            | beam.Reshuffle()
        )

    large = b"x" * (20 << 20)
    (value,) = run_bundle(stage_on(beam_pool, build), [large]).values
    assert value == large + b"!"


def test_what_user_code_raises_names_the_step(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        return (
            p | beam.Impulse() | "Divide it" >> beam.Map(lambda x: 1 // len(x)) | beam.Reshuffle()
        )

    stage = stage_on(beam_pool, build)
    with pytest.raises(BundleFailedError) as raised:
        run_bundle(stage, [b"1", b""])
    assert raised.value.step == "Divide it"
    assert raised.value.cause == "ZeroDivisionError: integer division or modulo by zero"
    assert "1 // len(x)" in raised.value.traceback_text
    assert run_bundle(stage, [b"1"]).values


class RaisesInSetup(beam.DoFn):  # type: ignore[misc]
    def setup(self) -> None:
        raise ValueError("no model")

    def process(self, element: Any) -> None: ...


def test_what_setup_raises_fails_the_bundle(beam_pool: str) -> None:
    def build(p: beam.Pipeline) -> Any:
        return p | beam.Impulse() | beam.ParDo(RaisesInSetup()) | beam.Reshuffle()

    with pytest.raises(BundleFailedError, match="ValueError: no model"):
        run_bundle(stage_on(beam_pool, build), [b""])


class Lookup:
    """A side input of three numbers that counts how often it is read."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.reads = 0

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        self.reads += 1
        coder = beam.coders.VarIntCoder()
        for number in (1, 20, 300):
            coded = coder.encode(number)
            yield bytes([len(coded)]) + coded, 1


class LostLookup(Lookup):
    """A side input whose file is on storage that does not work."""

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        yield from itertools.islice(super().values(window, key), 1)
        raise ShardStorageError("/views", "it is not mounted")


def _stage_that_reads(beam_pool: str) -> tuple[Any, tuple[str, str]]:
    """Return a stage that reads a side input, and what it reads it as."""

    def build(p: beam.Pipeline) -> Any:
        side = p | "side" >> beam.Impulse() | beam.Map(len)
        add = beam.Map(lambda x, numbers: b"%d" % sum(numbers), beam.pvalue.AsIter(side))
        return p | beam.Impulse() | "add" >> add.with_output_types(bytes) | beam.Reshuffle()

    stage = stage_on(beam_pool, build, stage=-2)
    (reader,) = (
        (id_, name)
        for id_, each in stage._descriptor.transforms.items()
        for name in each.inputs
        if name.startswith("python_side_input")
    )
    return stage, reader


def test_what_was_read_of_a_side_input_is_kept_for_later_bundles(beam_pool: str) -> None:
    stage, reader = _stage_that_reads(beam_pool)
    lookup, other = Lookup("job/1"), Lookup("job/2")
    collected = Collected()
    for each in (lookup, lookup, other):
        bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {reader: each})
        bundle.push([b"", b""], [BARE] * 2)
        bundle.finish()
    assert collected.values == [b"321"] * 6
    assert (lookup.reads, other.reads) == (1, 1)


def test_storage_that_does_not_work_is_not_the_fault_of_the_step(beam_pool: str) -> None:
    stage, reader = _stage_that_reads(beam_pool)
    receivers = dict.fromkeys(stage.output_coders, Collected())
    bundle = stage.start_bundle(receivers, {reader: LostLookup("job/3")})
    bundle.push([b""], [BARE])
    with pytest.raises(ShardStorageError, match="it is not mounted"):
        bundle.finish()
    bundle.abort()
    again = stage.start_bundle(receivers, {reader: Lookup("job/4")})
    again.push([b""], [BARE])
    again.finish()
