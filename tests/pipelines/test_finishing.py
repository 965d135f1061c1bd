"""Streaming pipelines of which some steps finish before others."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from tests.harvest import RARE_HARNESSES, harvest
from tests.stateful import Number

HOUR = "--batch_interval_millis=3600000"


class Noting(beam.DoFn):  # type: ignore[misc]
    """Passes elements on, and notes in a file what is called."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _note(self, what: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{what}\n")

    def setup(self) -> None:
        self._note("setup")

    def process(self, element: Any) -> Any:
        self._note("process")
        yield element

    def finish_bundle(self) -> None:
        self._note("finish")


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_a_bounded_pipeline_streams_to_its_end_however_long_the_interval(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Sources, side inputs and timers leave something due to further epochs."""
    (tmp_path / "in.txt").write_text("a\nb\na\n")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        words = p | beam.io.ReadFromText(str(tmp_path / "in.txt"))
        suffix = p | "Suffix" >> beam.Create(["!"])
        pair = beam.Map(lambda word, suffix: (word + suffix, 1), beam.pvalue.AsSingleton(suffix))
        pairs = words | pair.with_output_types(tuple[str, int])
        counts = pairs | beam.CombinePerKey(sum)
        counts | beam.Map(str) | beam.io.WriteToText(str(tmp_path / "out"))
        return {"counts": counts, "numbers": pairs | beam.ParDo(Number())}

    found = harvest(spark_session, build, "--streaming", HOUR, *flags)
    assert found["counts"] == [("a!", 2), ("b!", 1)]
    assert found["numbers"] == [("a!", 0), ("a!", 1), ("b!", 0)]
    written = "".join(path.read_text() for path in tmp_path.glob("out*"))
    assert sorted(written.splitlines()) == ["('a!', 2)", "('b!', 1)"]


def test_what_has_finished_is_not_begun_again(spark_session: Any, tmp_path: Path) -> None:
    """Between two runs nothing is stored of it, and its side input remains."""
    checkpoints, stop, calls = tmp_path / "checkpoints", tmp_path / "stop", tmp_path / "calls"
    stop.touch()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        for second in range(1, 8):
            events.add_elements([TimestampedValue(("a", second), second)])
        events.advance_watermark_to_infinity()
        created = p | beam.Create([("x", 1), ("x", 2), ("y", 4)]) | beam.ParDo(Noting(calls))
        sums = created | "First" >> beam.CombinePerKey(sum)
        by_sum = sums | beam.Map(lambda pair: (pair[1] % 2, pair[0])) | beam.GroupByKey()

        def check(pair: tuple[str, int], sums: dict[str, int]) -> tuple[str, int]:
            if pair[1] == 6 and stop.exists():
                raise RuntimeError("stopped")
            return pair[0], pair[1] * sums["x"]

        check_all = beam.Map(check, beam.pvalue.AsDict(sums)).with_output_types(tuple[str, int])
        checked = p | events | check_all
        numbers = checked | beam.ParDo(Number())
        windowed = checked | beam.WindowInto(FixedWindows(100)) | "Sum" >> beam.CombinePerKey(sum)
        return {"by sum": by_sum, "numbers": numbers, "sums": windowed}

    flag = f"--checkpoint_dir={checkpoints}"
    with pytest.raises(RuntimeError, match="stopped"):
        harvest(spark_session, build, flag)
    before = calls.read_text()
    assert before.count("process") == 3
    stop.unlink()
    found = harvest(spark_session, build, flag)
    assert calls.read_text() == before
    assert found["by sum"] == []
    assert found["numbers"] == [("a", 5), ("a", 6)]
    assert found["sums"] == [("a", 3 * sum(range(1, 8)))]


@pytest.mark.spark
def test_levels_that_have_finished_do_not_run(on_spark: Any) -> None:
    """The bounded side has three levels, of which the events pass two."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        for second in range(1, 4):
            events.add_elements([TimestampedValue(("a", second), second)])
        events.advance_watermark_to_infinity()
        groups = p | beam.Create([("x", 1)]) | beam.GroupByKey()
        again = groups | "Pair" >> beam.Map(lambda pair: ("b", pair)) | "Again" >> beam.GroupByKey()
        return {
            "created": again | beam.Map(lambda pair: pair[0]),
            "numbers": p | events | beam.ParDo(Number()),
        }

    tracker = on_spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    found = harvest(on_spark, build, "--parallel_test_streams")
    assert (found["created"], found["numbers"]) == (["b"], [("a", 0), ("a", 1), ("a", 2)])
    epochs = sorted(set(tracker.getJobIdsForGroup()) - before)
    assert [len(tracker.getJobInfo(epoch).stageIds) for epoch in epochs] == [3, 2, 2, 2]


def test_checkpoints_after_tasks_have_finished_can_be_refused(
    spark_session: Any, tmp_path: Path
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int]).add_elements([("a", 1)])
        events.add_elements([("a", 2)]).advance_watermark_to_infinity()
        numbers = p | events | beam.ParDo(Number())
        created = p | beam.Create([("x", 1)]) | beam.GroupByKey() | "Late" >> beam.Map(str)
        return {"numbers": numbers, "created": created}

    flags = (f"--checkpoint_dir={tmp_path}", "--checkpoints_after_tasks_finish=false")
    with pytest.raises(
        RuntimeError, match=r"--checkpoints_after_tasks_finish: is false.*epoch 1 .*Late.* has fini"
    ):
        harvest(spark_session, build, *flags)
    found = harvest(spark_session, build, flags[0])
    assert (found["numbers"], found["created"]) == ([("a", 0), ("a", 1)], ["('x', [1])"])
