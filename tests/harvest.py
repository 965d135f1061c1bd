"""Runs a pipeline and brings the elements of its collections back to the test.

Unlike ``assert_that``, whose assertion is lost with the elements that it looks
at, a collection that is not computed comes back empty, and the test fails.
"""

import contextlib
import pickle
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.engine.task.task import LevelTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESS = ("--environment_type=PROCESS", "--environment_config={}")
"""User code runs in SDK harnesses next to the Python workers, which end with the job."""
_REUSED = "--environment_cache_millis=60000"
REUSED_PROCESS = (*PROCESS, _REUSED)
"""The harnesses serve later jobs, too: for tests of something else than how harnesses end."""
BEAMS_OWN = (
    "--environment_type=PROCESS",
    '--environment_config={"command": "'
    f'{sys.executable} -m apache_beam.runners.worker.sdk_worker_main"}}',
    _REUSED,
)
"""SDK harnesses that know nothing of this package, and serve later jobs, too."""
LOOPBACK = ("--environment_type=LOOPBACK",)
"""User code runs in this process."""
SPREAD = "--single_task_budget=0"
"""All levels run in Spark stages of their own, with as many tasks as there are partitions."""
HARNESSES = (
    pytest.param((), id="embedded"),
    pytest.param(REUSED_PROCESS, id="process"),
    pytest.param(BEAMS_OWN, id="Beam's own harness", marks=pytest.mark.rare),
)
"""Harnesses between which elements cross in different encodings."""
RARE_HARNESSES = (
    HARNESSES[0],
    pytest.param(REUSED_PROCESS, id="process", marks=pytest.mark.rare),
    HARNESSES[2],
)
"""The same, where another test already takes the way through a process."""


class Kept(NamedTuple):
    """One element, with what Beam keeps next to it."""

    value: Any
    timestamp: Timestamp
    window: Any
    pane: Any
    partition: int


class Keep(beam.DoFn):  # type: ignore[misc]
    """Writes what it sees to a separate file for each bundle."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def start_bundle(self) -> None:
        self._kept: list[tuple[Any, ...]] = []

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> None:
        self._kept.append((element, timestamp, window, pane, partition_of_task()))

    def finish_bundle(self) -> None:
        Path(self._folder, uuid.uuid4().hex).write_bytes(pickle.dumps(self._kept))


_THREADS = threading.local()


def partition_of_task() -> int:
    """Return the partition of the task that calls; -1: it is another runner's, or a harness."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return getattr(_THREADS, "partition", -1) if context is None else int(context.partitionId())


@contextlib.contextmanager
def knowing_partitions() -> Iterator[None]:
    """Let user code of tasks in this process know their partitions, as Spark does in a worker."""
    produce = LevelTask._produce

    def noted(task: LevelTask, *arguments: Any) -> None:
        _THREADS.partition = task._partition  # each task has a separate thread
        produce(task, *arguments)

    with mock.patch.object(LevelTask, "_produce", noted):
        yield


class Harvest:
    """What a pipeline made."""

    def __init__(self, result: Any, kept: Mapping[str, list[Kept]]) -> None:
        self.result = result
        self.kept = kept

    def __getitem__(self, label: str) -> list[Any]:
        """Give the elements of a collection; sorted, if they can be."""
        values = [each.value for each in self.kept[label]]
        try:
            return sorted(values)
        except TypeError:
            return values

    def timed(self, label: str) -> list[tuple[Any, float]]:
        """Elements with their timestamps in seconds."""
        return sorted((each.value, each.timestamp.micros / 1e6) for each in self.kept[label])

    def partitions(self, label: str) -> set[int]:
        return {each.partition for each in self.kept[label]}

    def counter(self, name: str) -> int:
        return counter_of(self.result, name)


def counter_of(result: Any, name: str) -> int:
    """Sum of a counter over all steps, as committed."""
    found = result.metrics().query(MetricsFilter().with_name(name))["counters"]
    return sum(each.committed or 0 for each in found)


Collections = Mapping[str, Any]


def harvest(
    spark: "SparkSession", build: Callable[[beam.Pipeline], Collections], *flags: str
) -> Harvest:
    """Run what ``build`` builds, and give back the elements of the collections it returns."""
    return harvest_on(SparkPortableRunner(spark=spark), build, *flags)


def harvest_on(runner: Any, build: Callable[[beam.Pipeline], Collections], *flags: str) -> Harvest:
    """The same on any runner."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(flags)))
        collections = build(pipeline)
        for label, collection in collections.items():
            Path(folder, label).mkdir()
            collection | f"Keep {label}" >> beam.ParDo(Keep(str(Path(folder, label))))
        result = pipeline.run()
        assert result.wait_until_finish() == "DONE"
        kept = {label: list(_read(Path(folder, label))) for label in collections}
    return Harvest(result, kept)


def _read(folder: Path) -> Iterator[Kept]:
    for file in sorted(folder.iterdir()):
        yield from (Kept(*fields) for fields in pickle.loads(file.read_bytes()))


def run(spark: "SparkSession", build: Callable[[beam.Pipeline], Any], *flags: str) -> Any:
    """Run what ``build`` builds; give back the result, or raise what ``wait`` raises."""
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark), options=PipelineOptions(list(flags))
    )
    build(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    return result
