"""Job servers that die between any two changes of ``--jobs_dir``: the next one continues."""

import random
import threading
from pathlib import Path

import apache_beam as beam
import pytest

from beam_spark_runner.job.server.refusals import UnknownIdError
from tests.harness.processes import wait_for
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.served_jobs import Build, Server, counters, names_in, serving, state_of

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),  # they die
]

COUNTERS = {"counted": 20}


def sums_in(folder: Path) -> Build:
    """Return a pipeline of several levels with a file sink."""

    def pair(x: int) -> tuple[int, int]:
        beam.metrics.Metrics.counter("tests", "counted").inc()
        return x % 3, x

    def build(p: beam.Pipeline) -> None:
        sums = p | beam.Create(range(20)) | beam.Map(pair) | beam.CombinePerKey(sum)
        sums | "lines" >> beam.Map(str) | beam.io.WriteToText(str(folder / "sums"))

    return build


def threads_of(job_id: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if job_id in thread.name]


def dies_and_continues(folder: Path, at: int | None, *, is_done: bool) -> int:
    """Run a job on a server that dies, and on the next one; return how many changes it has made."""
    out = folder / "out"
    out.mkdir(parents=True)
    build = sums_in(out)
    deaths = Deaths(folder / "jobs", at, is_done=is_done)
    job_id = None
    with deaths.striking():
        try:
            server = Server(folder)
            preparation = server.prepare(build)
            job_id = server.jobs.run(preparation)
        except Died:
            pass
        if job_id is not None:
            wait_for(lambda: not threads_of(str(job_id)))
    with serving(folder) as server:
        if job_id is None:  # a client whose answer was lost calls Run again
            try:
                job_id = server.jobs.run(preparation)
            except (UnboundLocalError, UnknownIdError):  # nothing was submitted: it begins again
                job_id = server.jobs.run(server.prepare(build))
        job = server.jobs.job(job_id)
        assert state_of(job) == "DONE"
        assert counters(job) == COUNTERS
        assert names_in(folder)[-1].endswith(f"{job_id}.ended")
        assert len(names_in(folder)) == 1
    # A server does not unpickle sinks: the temporary folder of a write that begins again stays.
    files = [file for file in out.iterdir() if file.is_file()]
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(lines) == ["(0, 63)", "(1, 70)", "(2, 57)"]
    return len(deaths.changes)


def test_the_output_is_that_of_an_undisturbed_server(tmp_path: Path) -> None:
    """A few moments; the rare test has all."""
    changes = dies_and_continues(tmp_path / "undisturbed", None, is_done=False)
    chance = random.Random(5)
    for at in sorted(chance.sample(range(changes), 3)):
        dies_and_continues(tmp_path / str(at), at, is_done=chance.random() < 0.5)


@pytest.mark.rare
@pytest.mark.timeout(3600)
def test_the_output_is_that_of_an_undisturbed_server_at_all_moments(tmp_path: Path) -> None:
    changes = dies_and_continues(tmp_path / "undisturbed", None, is_done=False)
    for at in range(changes):
        for is_done in (False, True):
            dies_and_continues(tmp_path / f"{at} {is_done}", at, is_done=is_done)
