"""Spark tables compared with Beam's connectors and PySpark: ``python -m benchmarks.tables``.

Reads Parquet files with five columns, as rows and as batches, and writes them. All runs alternate
in one session; the first of each is not counted. Ratios of one run are meaningful, but seconds
only on a quiet machine.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark

_QUERY = """
SELECT id, CAST(id % 1000 AS INT) AS shop, CAST(id AS DOUBLE) / 8 AS price,
       concat('item ', id % 5000) AS item, id % 9 AS quantity FROM range({count})
"""
_ARROW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("shop", pa.int32()),
        ("price", pa.float64()),
        ("item", pa.string()),
        ("quantity", pa.int64()),
    ]
)


class _SumBatches(beam.DoFn):  # type: ignore[misc]
    """Sums one column of whole batches."""

    def process_batch(self, batch: pa.RecordBatch) -> Iterator[list[int]]:
        yield [pc.sum(batch.column("shop")).as_py()]

    def infer_output_type(self, input_type: Any) -> Any:
        return int

    def get_output_batch_type(self, input_type: Any) -> Any:
        return list[int]


class Tables:
    """The two variants of each task. Every method runs one of them to its end."""

    def __init__(self, count: int, folder: Path) -> None:
        self._spark = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
        self._count = count
        self._folder = folder
        self._path = str(folder / "in")
        self._sum = sum(number % 1000 for number in range(count))
        self._spark.sql(_QUERY.format(count=count)).write.parquet(self._path)

    def _run(self, build: Callable[[beam.Pipeline], None]) -> None:
        with beam.Pipeline(runner=SparkPortableRunner(self._spark)) as pipeline:
            build(pipeline)

    def _check(self, sums: beam.PCollection) -> None:
        expected = self._sum

        def check(total: int) -> None:
            if total != expected:
                raise ValueError(f"{total} instead of {expected}: the run is void")

        sums | beam.CombineGlobally(sum) | "Check" >> beam.Map(check)

    def rows(self) -> None:
        """Read with ``ReadFromSpark``, followed by a Map."""
        self._run(
            lambda p: self._check(
                p | ReadFromSpark(path=self._path) | beam.Map(lambda row: row.shop)
            )
        )

    def beams_rows(self) -> None:
        """Read with ``ReadFromParquet``, followed by a Map, on this runner."""
        self._run(
            lambda p: self._check(
                p
                | beam.io.ReadFromParquet(f"{self._path}/*.parquet")
                | beam.Map(lambda row: row["shop"])
            )
        )

    def batches(self) -> None:
        """Read with ``ReadFromSpark``, followed by a batch DoFn."""
        self._run(
            lambda p: self._check(
                p | ReadFromSpark(path=self._path, batches=True) | beam.ParDo(_SumBatches())
            )
        )

    def sparks_batches(self) -> None:
        """Compute the same as ``batches`` in plain PySpark."""

        def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            total = sum(pc.sum(batch.column("shop")).as_py() or 0 for batch in batches)
            yield pa.RecordBatch.from_pydict({"total": [total]})

        frame = self._spark.read.parquet(self._path).mapInArrow(sums, "total long")
        if sum(row.total for row in frame.collect()) != self._sum:
            raise ValueError("the run is void")

    def write(self) -> None:
        """Write rows that are read, with ``WriteToSpark``."""
        out = str(self._folder / "ours")
        self._run(
            lambda p: p | ReadFromSpark(path=self._path) | WriteToSpark(path=out, mode="overwrite")
        )

    def beams_write(self) -> None:
        """Write the same rows as dicts, with ``WriteToParquet``, on this runner."""
        out = self._folder / "beams"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        self._run(
            lambda p: (
                p
                | ReadFromSpark(path=self._path)
                | beam.Map(lambda row: row.__dict__)
                | beam.io.WriteToParquet(str(out / "part"), _ARROW_SCHEMA)
            )
        )


def main() -> None:
    """Run all variants, and print their times and ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as folder:
        tables = Tables(arguments.rows, Path(folder))
        for title, ours, other, goal in (
            ("rows into a Map, against ReadFromParquet", tables.rows, tables.beams_rows, 0.6),
            ("batches, against mapInArrow", tables.batches, tables.sparks_batches, 1.5),
            ("writing, against WriteToParquet", tables.write, tables.beams_write, 0.6),
        ):
            first, second = _in_turns(ours, other, arguments.runs)
            print(
                f"{title}: {arguments.rows:,} rows, {first:.2f} s and {second:.2f} s: "
                f"{first / second:.2f} (goal: at most {goal})",
                flush=True,
            )


def _in_turns(
    ours: Callable[[], None], other: Callable[[], None], runs: int
) -> tuple[float, float]:
    best = [float("inf"), float("inf")]
    for number in range(runs + 1):
        for which, run in enumerate((ours, other)):
            started = time.monotonic()
            run()
            if number:
                best[which] = min(best[which], time.monotonic() - started)
    return best[0], best[1]


if __name__ == "__main__":
    main()
