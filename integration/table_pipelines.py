"""Pipelines that read and write a Spark table in every way, whatever its format and its Spark.

A separate module: executors import it by this name.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError, PipelineRefusedError, SparkJobError
from beam_spark_runner.transforms import ReadFromSpark, SparkWriteResult, WriteToSpark
from integration.waiting import wait_until

COUNT = 500
"""Ids of ``in_and_out``."""
SCHEMA = "id BIGINT, part INT, price DECIMAL(10,2)"
SLOW_BLOCKS, SLOW_BLOCK = 300, 1000
SLOW_COUNT = SLOW_BLOCKS * SLOW_BLOCK
"""Rows of a write that takes long enough for something to happen meanwhile."""


@dataclass(frozen=True)
class Target:
    """A table, and how to look at it without this runner.

    Attributes:
        spark: session that has it, classic or Connect.
        arguments: of ``ReadFromSpark`` and ``WriteToSpark``.
        load: gives a DataFrame of it.
        flags: of all pipelines.
    """

    spark: Any
    arguments: dict[str, Any]
    load: Callable[[], Any]
    flags: tuple[str, ...] = field(default=())

    def ids(self) -> list[int]:
        """Return the ids of all rows, in order."""
        return sorted(row.id for row in self.load().select("id").collect())

    def run(self, build: Callable[[beam.Pipeline], Any]) -> Any:
        """Run a pipeline to its end."""
        result = self.start(build)
        assert result.wait_until_finish(600_000) == PipelineState.DONE
        return result

    def start(self, build: Callable[[beam.Pipeline], Any]) -> Any:
        """Start a pipeline."""
        options = PipelineOptions(list(self.flags))
        pipeline = beam.Pipeline(runner=SparkPortableRunner(self.spark), options=options)
        build(pipeline)
        return pipeline.run()

    def write(self, ids: Collection[int], *, is_skipped: bool = False, **arguments: Any) -> None:
        """Write rows with ids, and check what the write says of itself."""

        def build(p: beam.Pipeline) -> None:
            rows = p | beam.Create(list(ids)) | beam.Reshuffle() | beam.Map(row_of)
            written = rows | WriteToSpark(schema=SCHEMA, **{**self.arguments, **arguments})
            expected = (False, 0) if is_skipped else (True, len(ids))
            facts = written | "Facts" >> beam.Map(_facts_of)
            assert_that(facts, equal_to([expected]))

        self.run(build)

    def check_read(self, ids: Iterable[int], **arguments: Any) -> None:
        """Check what a pipeline reads."""

        def build(p: beam.Pipeline) -> None:
            rows = p | ReadFromSpark(**{**self.arguments, **arguments})
            found = rows | beam.Map(lambda row: (row.id, row.part, str(row.price)))
            expected = [(id_, id_ % 3, f"{id_}.50") for id_ in ids]
            assert_that(found, equal_to(expected))

        self.run(build)


def row_of(id_: int) -> dict[str, Any]:
    """Return the row with an id."""
    return {"id": id_, "part": id_ % 3, "price": Decimal(f"{id_}.50")}


def _facts_of(result: SparkWriteResult) -> tuple[bool, int]:
    return result.written, result.rows


def check_modes(target: Target, **arguments: Any) -> None:
    """Write in every mode to a table that does not exist, and read it after each write."""
    target.write(range(5), **arguments)
    target.check_read(range(5))
    with pytest.raises(PipelineRefusedError, match="exists already, and the mode is error"):
        target.write([9], **arguments)
    target.write(range(5, 8), mode="append", **arguments)
    target.check_read(range(8))
    target.write([9], mode="ignore", is_skipped=True, **arguments)
    assert target.ids() == [*range(8)]
    target.write([20, 21], mode="overwrite", **arguments)
    target.check_read([20, 21])
    target.check_read([21], where="id > 20", columns=["id", "part", "price"])
    target.write([], mode="append", **arguments)
    assert target.ids() == [20, 21]


def check_failures(target: Target) -> None:
    """Fail in the steps before a write, in other steps, and in the write: nothing is written.

    Args:
        target: exists.
    """
    before = target.ids()
    for mode in ("append", "overwrite"):
        for fails in ("before", "late"):
            with pytest.raises(BundleFailedError, match="no good"):
                target.run(functools.partial(_fail, target=target, mode=mode, fails=fails))
            assert target.ids() == before


def check_failed_append(target: Target) -> None:
    """Append rows of which one does not fit: Spark's write fails, and nothing is written."""
    before = target.ids()

    def build(p: beam.Pipeline) -> None:
        rows = p | beam.Create([*range(100, 120)]) | beam.Reshuffle() | beam.Map(row_of)
        one = p | "One" >> beam.Create([{"id": 1, "part": 1, "price": Decimal("0.001")}])
        _ = (rows, one) | beam.Flatten() | _wide_write(target)

    with pytest.raises(SparkJobError, match="column price: a value does not fit"):
        target.run(build)
    assert target.ids() == before


def _wide_write(target: Target) -> WriteToSpark:
    schema = SCHEMA.replace("DECIMAL(10,2)", "DECIMAL(38,18)")
    return WriteToSpark(schema=schema, mode="append", **target.arguments)


def _fail(p: beam.Pipeline, target: Target, mode: str, fails: str) -> None:
    numbers = p | beam.Create([*range(100, 150)]) | beam.Reshuffle()
    if fails == "before":
        numbers |= "Fail before" >> beam.Map(_fail_late)
    else:  # in a Spark job after that which makes the rows
        count = numbers | beam.combiners.Count.Globally()
        _ = numbers | "Fail late" >> beam.Map(lambda n, _: _fail_late(n), AsSingleton(count))
    rows = numbers | beam.Map(row_of)
    _ = rows | WriteToSpark(schema=SCHEMA, mode=mode, **target.arguments)


def _fail_late(number: int) -> int:
    if number == 149:
        raise ValueError("no good")
    return number


def write_slowly(p: beam.Pipeline, target: Target, mode: str, first: int = 1000) -> None:
    """Write ``SLOW_COUNT`` rows, whose ids begin with ``first``."""
    blocks = p | beam.Create([*range(SLOW_BLOCKS)]) | beam.Reshuffle()
    ids = blocks | beam.FlatMap(_block, first)
    rows = ids | beam.Map(row_of)
    _ = rows | WriteToSpark(schema=SCHEMA, **{**target.arguments, "mode": mode})


def _block(number: int, first: int) -> Iterable[int]:
    start = first + number * SLOW_BLOCK
    return range(start, start + SLOW_BLOCK)


def wait_for_data(folder: Path, before: Collection[Path], result: Any) -> None:
    """Wait until the write of a pipeline has begun with a file of data, wherever it puts it first.

    Args:
        folder: of the table.
        before: the files that were there.
        result: of the pipeline.
    """
    wait_until(
        lambda: (
            bool(files_of_data(folder) - set(before)) or PipelineState.is_terminal(result.state)
        ),
        "a file of data",
    )
    assert not PipelineState.is_terminal(result.state), "it was too quick, or has failed"


def files_of_data(folder: Path) -> set[Path]:
    """Return the files of Parquet of a table, those of its log left out; temporary ones, too."""
    with contextlib.suppress(OSError):  # a temporary folder has gone meanwhile
        return {path for path in _walk(folder) if "_delta_log" not in path.parts}
    return set()


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.parquet"):
        if path.is_file():
            yield path


def check_cancelled(target: Target, folder: Path, mode: str) -> None:
    """Cancel a pipeline in the middle of its Spark write: the table is as it was."""
    before, files = target.ids(), files_of_data(folder)
    result = target.start(lambda p: write_slowly(p, target, mode))
    wait_for_data(folder, files, result)
    assert result.cancel() == PipelineState.CANCELLED
    assert target.ids() == before


def check_killed(target: Target, folder: Path, mode: str, kill: Callable[[], Any]) -> None:
    """Lose an executor in the middle of a Spark write: all rows are there, each once.

    Args:
        target: on a cluster.
        folder: of the table.
        mode: of the write. With ``error`` and ``ignore`` there must be no table yet.
        kill: kills an executor.
    """
    is_new = mode in ("error", "ignore")
    before = [] if is_new else target.ids()
    files = files_of_data(folder)
    result = target.start(lambda p: write_slowly(p, target, mode))
    wait_for_data(folder, files, result)
    assert kill() is not None
    assert result.wait_until_finish(600_000) == PipelineState.DONE
    new = [*range(1000, 1000 + SLOW_COUNT)]
    assert target.ids() == (before + new if mode == "append" else new)


def in_and_out(runner: Any, *flags: str, read: dict[str, Any], write: dict[str, Any]) -> None:
    """Read ids, ``COUNT`` of them; write those that are even, and check the counts."""
    with beam.Pipeline(runner=runner, options=PipelineOptions(list(flags))) as p:
        rows = p | ReadFromSpark(**read)
        evens = rows | beam.Filter(lambda row: row.id % 2 == 0)
        written = evens | WriteToSpark(schema="id BIGINT", **write)
        total = rows | beam.combiners.Count.Globally()
        assert_that(total, equal_to([COUNT]), label="read")
        assert_that(
            written | beam.Map(lambda result: result.rows), equal_to([COUNT // 2]), label="written"
        )
