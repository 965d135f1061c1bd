"""A job server with a page, in a process that a test kills: its jobs run in it, without a JVM."""

import sys
import threading
from pathlib import Path

import apache_beam as beam

from beam_spark_runner.job.page.page_port import PagePort
from beam_spark_runner.job.server.listed_jobs import ListedJobs
from beam_spark_runner.options.page_address import PageAddress
from integration.page.shown_pipelines import sleeping
from tests.pipelines.served_jobs import Server

SUBMIT = "submit"


def nightly_import(p: beam.Pipeline) -> None:
    """Build a pipeline whose last Spark job takes minutes."""
    _ = (
        p
        | "Lines" >> beam.Create(range(3_000))
        | "By letter" >> beam.Map(lambda number: (number % 26, number))
        | "Group" >> beam.GroupByKey()
        | "Values" >> beam.FlatMap(lambda pair: pair[1])
        | "Look up" >> beam.Map(sleeping(0.1))
    )


def main(folder: str, port: str, *orders: str) -> None:
    """Serve until the process is killed."""
    server = Server(Path(folder))
    page = PagePort(PageAddress(int(port)), ListedJobs(server.jobs, lambda: None), "Jobs", None)
    if SUBMIT in orders:
        server.submit(nightly_import, job_name="nightly import")
    print(page.url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
