"""What rounds of splittable DoFns gain on real readers: ``python -m benchmarks.readers``.

Each case runs with ``--sdf_round_budget=0`` and with rounds in turns, in one session. Records are
lines of JSON; the work for each is to parse it, a number of times. All results are checked.
"""

import argparse
import gzip
import hashlib
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.dataframe.convert import to_pcollection
from apache_beam.dataframe.io import read_json
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.core import RestrictionProvider

from benchmarks.cases import check

_REST = json.dumps({"words": ["lorem ipsum dolor"] * 12, "nested": {"a": 1.5, "b": [1, 2]}})[1:]


class _Case(NamedTuple):
    counts: list[int]  # of the records of each file
    parses: int  # of each record
    read: str = "text"
    suffix: str = ".json"  # of the first file
    groups: int = 1  # of rows, in the first file


_SKEWED = [400_000, *[4_000] * 10]
CASES = {
    "own": _Case(_SKEWED, 4, "own"),  # a splittable DoFn that does not split before it works
    "own_split": _Case(_SKEWED, 4, "own_split"),  # one that splits into pieces of 4 MB
    "frames": _Case(_SKEWED, 6, "frames"),  # Beam's DataFrames, which do not split before either
    "text_1_mb": _Case([2_500], 1_500),  # one restriction
    "text_8_mb": _Case([20_000], 200),  # three restrictions
    "gzip": _Case([300_000, *[4_000] * 30], 4, "text", ".gz"),
    "parquet_3_groups": _Case([1_300_000, *[4_000] * 30], 1, "parquet", "", 3),
    "parquet_100_groups": _Case([1_300_000, *[4_000] * 30], 1, "parquet", "", 100),
    "read_all": _Case(_SKEWED, 4, "read_all"),
    "text": _Case([560_000], 3),  # 200 MB, 15 restrictions
}


def _line(number: int) -> str:
    """Return a record of 370 bytes, of which a part does not compress."""
    return f'{{"number": {number}, "id": "{hashlib.md5(b"%d" % number).hexdigest()}", {_REST}\n'


def _write(folder: Path, case: _Case) -> None:
    first = 0
    for index, count in enumerate(case.counts):
        path = folder / f"{index:03}{case.suffix if index == 0 else '.json'}"
        lines, first = map(_line, range(first, first + count)), first + count
        if case.read == "parquet":
            table, groups = pa.table({"line": list(lines)}), case.groups if index == 0 else 1
            pq.write_table(table, path, -(-count // groups), compression="none")
            continue
        with gzip.open(path, "wt", 1) if path.suffix == ".gz" else path.open("w") as file:
            file.writelines(lines)


class _Bytes(RestrictionProvider):  # type: ignore[misc]
    """The bytes of a file, in pieces of a size, or in one piece."""

    def __init__(self, piece: int | None) -> None:
        self._piece = piece

    def initial_restriction(self, element: str) -> OffsetRange:
        return OffsetRange(0, Path(element).stat().st_size)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: str, restriction: OffsetRange) -> int:
        return int(restriction.size())

    def split(self, element: str, restriction: OffsetRange) -> Iterator[OffsetRange]:
        yield from restriction.split(self._piece) if self._piece else [restriction]


def _reader(piece: int | None) -> beam.PTransform:
    provider = beam.DoFn.RestrictionParam(_Bytes(piece))

    class Read(beam.DoFn):  # type: ignore[misc]
        def process(self, element: str, tracker: Any = provider) -> Iterator[bytes]:
            with open(element, "rb") as file:
                if start := tracker.current_restriction().start:
                    file.seek(start - 1)
                    file.readline()  # a line belongs to the restriction that has its first byte
                while tracker.try_claim(file.tell()) and (record := file.readline()):
                    yield record

    return beam.ParDo(Read())


def _records(pipeline: beam.Pipeline, read: str, folder: Path) -> Any:
    if read == "text":
        return pipeline | beam.io.ReadFromText(f"{folder}/*")
    if read == "parquet":
        rows = pipeline | beam.io.ReadFromParquet(f"{folder}/*")
        return rows | beam.Map(lambda row: row["line"])
    if read == "frames":
        frame = pipeline | read_json(f"{folder}/*", lines=True, orient="records")
        return to_pcollection(frame[["number"]]) | beam.Map(lambda row: _line(row.number))
    paths = pipeline | beam.Create(sorted(map(str, folder.iterdir())))
    if read == "read_all":
        return paths | beam.io.ReadAllFromText()
    return paths | _reader(4 << 20 if read == "own_split" else None)


def _parse(record: Any, times: int) -> int:
    """Return the square of the record's number, so that a sum shows what is lost or doubled."""
    for _ in range(times - 1):
        json.loads(record)
    return int(json.loads(record)["number"]) ** 2 + 1


class _Cpu(threading.Thread):
    """Sums the CPU time of this process and of all below it: of all, and of the busiest one.

    The latter is summed over short times, in each of which another one may be the busiest: about
    what the run takes if each process has a core, however busy the machine is.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.total = self.path = 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        me, last = psutil.Process(), dict[int, float]()
        while True:
            is_last, now = self._ended.wait(0.25 if last else 0), dict[int, float]()
            for each in [me, *me.children(recursive=True)]:
                try:
                    now[each.pid] = sum(each.cpu_times()[:2])
                except psutil.Error:
                    continue
            spent = [seconds - last.get(pid, seconds) for pid, seconds in now.items()]
            self.total, self.path, last = self.total + sum(spent), self.path + max(spent), now
            if is_last:
                return

    def stop(self) -> None:
        self._ended.set()
        self.join()


def _run(session: Any, case: _Case, folder: Path, *flags: str) -> tuple[float, ...]:
    """Return a run's seconds, those of the busiest process and of all, and its Spark jobs."""
    from beam_spark_runner import SparkPortableRunner

    jobs = session.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    before, began, cpu = jobs(), time.monotonic(), _Cpu()
    cpu.start()
    options, count = PipelineOptions(list(flags)), sum(case.counts)
    with beam.Pipeline(runner=SparkPortableRunner(session), options=options) as pipeline:
        squares = _records(pipeline, case.read, folder) | beam.Map(_parse, case.parses)
        expected = (count - 1) * count * (2 * count - 1) // 6 + count
        squares | beam.CombineGlobally(sum) | beam.Map(check, expected)
    wall = time.monotonic() - began
    cpu.stop()
    return wall, cpu.path, cpu.total, jobs() - before


def main() -> None:
    """Run the cases of the command line; print each run, and medians with and without rounds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readers", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    from beam_spark_runner.spark.session.launch import start_classic

    session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    titles = "s", "s of the busiest process", "s of CPU", "Spark jobs"
    for name in arguments.cases or CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as scratch:
            warm = Path(scratch) / "warm", case._replace(counts=[2_500], parses=50)
            cold = Path(scratch) / "files", case
            for folder, each in (warm, cold):
                folder.mkdir()
                _write(folder, each)
            _run(session, warm[1], warm[0])
            taken: dict[str, list[Any]] = {"0": [], "2": []}
            for _ in range(arguments.pairs):
                for budget, runs in taken.items():
                    runs.append(_run(session, case, cold[0], f"--sdf_round_budget={budget}"))
                    print(name, budget, *(f"{figure:.1f}" for figure in runs[-1]), flush=True)
        for index, title in enumerate(titles):
            here, rounds = (statistics.median(r[index] for r in runs) for runs in taken.values())
            times = f"{here / rounds:.2f}"
            print(f"{name}: {here:.1f} {title} in place, {rounds:.1f} in rounds: {times}")


if __name__ == "__main__":
    main()
