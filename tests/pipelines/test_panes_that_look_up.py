"""Panes that fire epochs after the ends of their windows, in steps that have side inputs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.pvalue import AsList, AsSingleton
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import FixedWindows, Sessions, TimestampedValue

from tests.harvest import RARE_HARNESSES, harvest

KEYS = 7
# An epoch has no time: in each stage and task one window fires.
AT_ONCE = "--batch_interval_millis=0"
GROUPS = [(f"key {n}", [n], ("side", 70)) for n in range(KEYS)]


def stream() -> Stream:
    """All windows are due before the last element comes."""
    events = Stream().with_output_types(tuple[str, int])
    events.add_elements([TimestampedValue((f"key {n}", n), 1 + n % 3) for n in range(KEYS)])
    return events.advance_watermark_to(40).advance_watermark_to_infinity()


def look_up(group: tuple[str, Iterable[int]], side: Any) -> tuple[str, list[int], Any]:
    return group[0], sorted(group[1]), sorted(side) if isinstance(side, list) else side


class Counts(beam.DoFn):  # type: ignore[misc]
    """Has state for each key, and looks up."""

    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(
        self,
        group: tuple[str, Iterable[int]],
        side: tuple[str, int],
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> Iterator[tuple[str, list[int], Any]]:
        assert not [*seen.read()]
        seen.add(1)
        yield look_up(group, side)


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_all_panes_look_up(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        # Beam takes the side input of a stateful DoFn for its main one, now and then (``core.ParDo.
        # _get_key_and_window_coder``, by the order of a set of names): so it has keys, too.
        side = AsSingleton(p | beam.Create([("side", 70)]))
        groups = p | stream() | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()
        return {
            "looked up": groups | beam.Map(look_up, side),
            "with state": groups | beam.ParDo(Counts(), side),
        }

    found = harvest(spark_session, build, AT_ONCE, *flags)
    assert found["looked up"] == GROUPS
    assert found["with state"] == GROUPS


def test_panes_look_up_windows_that_have_ended(spark_session: Any) -> None:
    """Nobody knows in which order sessions look up, and which windows they still need."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        table = p | beam.Create([4, 11, 12]) | beam.Map(lambda n: TimestampedValue(n, n))
        side = AsList(table | "In tens" >> beam.WindowInto(FixedWindows(10)))
        groups = p | stream() | beam.WindowInto(Sessions(9)) | beam.GroupByKey()
        return {"groups": groups | beam.Map(look_up, side)}

    # The sessions end from 10 to 12, the last one of which is at 11.999.
    assert harvest(spark_session, build, AT_ONCE)["groups"] == [
        (f"key {n}", [n], [4] if 1 + n % 3 + 9 <= 10 else [11, 12]) for n in range(KEYS)
    ]


def test_files_of_all_windows_are_written(spark_session: Any, tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(coder=StrUtf8Coder()).with_output_types(str)
        events.add_elements([TimestampedValue(f"line {n}", 10 * n + 1) for n in range(KEYS)])
        events.advance_watermark_to(100).advance_watermark_to_infinity()
        lines = p | events | beam.WindowInto(FixedWindows(10))
        return {"files": lines | beam.io.WriteToText(str(tmp_path / "out"), num_shards=1)}

    assert len(harvest(spark_session, build, AT_ONCE)["files"]) == KEYS
    assert sorted(each.read_text() for each in tmp_path.glob("out*")) == [
        f"line {n}\n" for n in range(KEYS)
    ]
