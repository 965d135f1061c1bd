"""Small jobs in one process: what each of them takes, after the first ones.

``python -m benchmarks.start.warm NAME RUNS`` prints the seconds of each run.
"""

import collections
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from operator import add
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io import ReadFromText, WriteToText
from apache_beam.options.pipeline_options import PipelineOptions

_MASTER = "local[2]"
_TEXT_BYTES = 1 << 20
_COMBINES = 40
_BRANCHES = 200
_RUNNER = ["--runner=SparkPortableRunner", "--progress=off"]
_FLAGS = {
    "ours": [*_RUNNER, f"--spark_master_url={_MASTER}"],
    "in-process": [*_RUNNER, "--spark_master_url=in-process"],
    "peer": ["--runner=FnApiRunner"],
}


def _run(by: str, build: Callable[[beam.Pipeline], Any]) -> None:
    with beam.Pipeline(options=PipelineOptions(_FLAGS[by])) as pipeline:
        build(pipeline)


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.master(_MASTER).getOrCreate()


def _three_elements(pipeline: beam.Pipeline) -> None:
    pairs = pipeline | beam.Create([1, 2, 3]) | beam.Map(lambda number: (number, 1))
    pairs | beam.GroupByKey() | beam.Map(str)


def _three_elements_by_hand(folder: Path) -> None:
    numbers = _session().sparkContext.parallelize([1, 2, 3], 2)
    pairs = numbers.map(lambda number: (number, 1)).groupByKey(2)
    if len(pairs.map(str).collect()) != 3:
        raise ValueError("the RDD's result is wrong")


def _text(folder: Path) -> Path:
    file = folder / "text"
    if not file.exists():
        words = [f"word{number * number % 5_003}" for number in range(_TEXT_BYTES // 9)]
        lines = (" ".join(words[start : start + 10]) for start in range(0, len(words), 10))
        file.write_text("\n".join(lines))
    return file


def _check_counts(folder: Path) -> None:
    """Check the output of a word count, and remove it."""
    found = collections.Counter[str]()
    for file in (folder / "out").glob("part*"):
        for line in file.read_text().splitlines():
            word, count = line.rsplit(" ", 1)
            found[word] += int(count)
    shutil.rmtree(folder / "out")
    if found != collections.Counter(_text(folder).read_text().split()):
        raise ValueError("the counts are wrong")


def _build_word_count(pipeline: beam.Pipeline, folder: Path) -> None:
    words = pipeline | ReadFromText(str(_text(folder))) | beam.FlatMap(str.split)
    counts = words | beam.Map(lambda word: (word, 1)) | beam.CombinePerKey(sum)
    lines = counts | beam.MapTuple(lambda word, count: f"{word} {count}")
    lines | WriteToText(str(folder / "out" / "part"))


def _word_count(folder: Path, by: str = "ours") -> None:
    (folder / "out").mkdir()
    _run(by, lambda pipeline: _build_word_count(pipeline, folder))


def _build_alone(build: Callable[[beam.Pipeline], Any]) -> None:
    """Do what Beam does before a runner gets a pipeline."""
    pipeline = beam.Pipeline(options=PipelineOptions(_FLAGS["ours"]))
    build(pipeline)
    pipeline.to_runner_api()


def _word_count_by_hand(folder: Path) -> None:
    words = _session().sparkContext.textFile(str(_text(folder)), 2).flatMap(str.split)
    counts = words.map(lambda word: (word, 1)).reduceByKey(add, 2)
    counts.map(lambda pair: f"{pair[0]} {pair[1]}").saveAsTextFile(str(folder / "out"))


def _combines(pipeline: beam.Pipeline) -> None:
    pairs = pipeline | beam.Create([("a", 1), ("b", 2), ("c", 3)])
    for number in range(_COMBINES):
        pairs |= f"combine {number}" >> beam.CombinePerKey(sum)


def _branches(pipeline: beam.Pipeline) -> None:
    numbers = pipeline | beam.Create([1, 2, 3])
    branches = [numbers | f"add {each}" >> beam.Map(add, each) for each in range(_BRANCHES)]
    branches | beam.Flatten() | beam.Map(str)


def _in_given_session(folder: Path) -> None:
    _session()  # the runner finds it
    _run("ours", _three_elements)


CASES: dict[str, Callable[[Path], None]] = {
    "three": lambda folder: _run("ours", _three_elements),
    "three, given session": _in_given_session,
    "three, RDD": _three_elements_by_hand,
    "word count": _word_count,
    "word count, RDD": _word_count_by_hand,
    "word count, in-process": lambda folder: _word_count(folder, "in-process"),
    "word count, FnApiRunner": lambda folder: _word_count(folder, "peer"),
    "word count, built": lambda folder: _build_alone(lambda p: _build_word_count(p, folder)),
    "three, built": lambda folder: _build_alone(_three_elements),
    "combines": lambda folder: _run("ours", _combines),
    "combines, FnApiRunner": lambda folder: _run("peer", _combines),
    "branches": lambda folder: _run("ours", _branches),
    "branches, FnApiRunner": lambda folder: _run("peer", _branches),
}


def _jobs() -> int | None:
    """Return the number of Spark jobs of this process so far; None: it has no Spark."""
    from pyspark import SparkContext

    from beam_spark_runner.spark import pyspark_internals

    context = SparkContext._active_spark_context
    return None if context is None else pyspark_internals.jobs_so_far(context)


def main() -> None:
    """Run a case, print the seconds of each run, and the Spark jobs of the last one."""
    name, runs = sys.argv[1], int(sys.argv[2])
    jobs: int | None = None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in range(runs):
            if number == runs - 1:
                jobs = _jobs()
            began_s = time.perf_counter()
            CASES[name](folder)
            print(f"{time.perf_counter() - began_s:.3f}", flush=True)
            if (folder / "out").exists():
                _check_counts(folder)
        if jobs is not None:
            print(f"jobs {(_jobs() or 0) - jobs}")


if __name__ == "__main__":
    main()
