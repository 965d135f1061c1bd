"""Jobs whose tasks take turns in the same Python workers: none disturbs another one."""

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics

from tests.harvest import PROCESS, run

pytestmark = pytest.mark.spark

ELEMENTS = 8


class Noting(beam.DoFn):  # type: ignore[misc]
    """Notes its life in files, and leaves a log line and a count for each element."""

    def __init__(self, folder: Path, job: str, step: str) -> None:
        self._folder, self._job, self._step = str(folder), job, step

    def setup(self) -> None:
        self._note("setup", os.getpid())

    def process(self, element: int) -> Iterator[int]:
        logging.getLogger("user.module").info("%s of %s saw %d", self._step, self._job, element)
        Metrics.counter(self._job, self._step).inc()
        yield element

    def teardown(self) -> None:
        self._note("teardown", os.getpid())

    def _note(self, event: str, what: object) -> None:
        with Path(self._folder, f"{self._job}-{self._step}-{event}").open("a") as notes:
            notes.write(f"{what}\n")


class Finalizing(Noting):
    """Notes each element again once the output of its bundle is accepted."""

    def process(
        self, element: int, finalizer: Any = beam.DoFn.BundleFinalizerParam
    ) -> Iterator[int]:
        finalizer.register(lambda: self._note("finalized", element))
        yield from super().process(element)


STEPS = "one", "two", "three"


def _run_one(session: Any, folder: Path, job: str, begin: threading.Barrier, *flags: str) -> Any:
    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create(range(ELEMENTS), reshuffle=True)
        for step in STEPS:  # a segment each: the side input must be whole
            kind = Finalizing if step == "two" else Noting
            numbers |= step >> beam.ParDo(kind(folder, job, step))
            whole = beam.pvalue.AsList(numbers)
            numbers |= f"After {step}" >> beam.Map(
                lambda n, seen: (n, len(seen))[0], whole
            ).with_output_types(int)
            numbers |= f"Spread {step}" >> beam.Reshuffle()

    begin.wait(60)
    return run(session, build, *flags)


@pytest.mark.parametrize(
    ("jobs", "flags"),
    [
        pytest.param(2, (), id="two"),
        pytest.param(20, (), id="twenty", marks=pytest.mark.rare),
        pytest.param(2, PROCESS, id="two in processes", marks=pytest.mark.rare),
    ],
)
def test_jobs_take_turns(
    spark_session: Any, tmp_path: Path, jobs: int, flags: tuple[str, ...]
) -> None:
    names = [f"job{number}" for number in range(jobs)]
    begin = threading.Barrier(jobs)
    with ThreadPoolExecutor(jobs) as threads:
        results = dict(
            zip(
                names,
                threads.map(
                    lambda name: _run_one(spark_session, tmp_path, name, begin, *flags), names
                ),
                strict=True,
            )
        )
    for name, result in results.items():
        lines = Counter(each.message_text.split(" [")[0] for each in result.messages())
        assert lines == Counter(
            f"{step} of {name} saw {n}" for step in STEPS for n in range(ELEMENTS)
        )
        counters = {
            (each.key.metric.namespace, each.key.metric.name): each.committed
            for each in result.metrics().query()["counters"]
        }
        assert counters == {(name, step): ELEMENTS for step in STEPS}
        for step in STEPS:

            def noted(event: str, part: str = f"{name}-{step}") -> list[str]:
                path = tmp_path / f"{part}-{event}"
                return sorted(path.read_text().split()) if path.exists() else []

            assert noted("setup") == noted("teardown")
            if step == "two":
                assert noted("finalized") == sorted(map(str, range(ELEMENTS)))
            elif not flags:  # an SDK harness makes one for each bundle that runs next to others
                assert len(set(noted("setup"))) == len(noted("setup"))
