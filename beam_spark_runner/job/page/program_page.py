"""The page of a program: one for all pipelines that it runs, until it ends."""

import dataclasses
import secrets
import threading
from collections.abc import Sequence

from beam_spark_runner.core.errors import SAVEPOINT_ARGUMENT, RunnerError
from beam_spark_runner.job.page.page_port import PagePort
from beam_spark_runner.job.page.shown_job import ShownJob
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.watching.program_start import script_name
from beam_spark_runner.options.page_address import PageAddress
from beam_spark_runner.options.values import required_folder

MAX_ENDED = 200
MAX_BYTES_OF_ENDED = 64 << 20
"""The most ended jobs that the page shows, and the size of their messages; the oldest go first."""
_TOKEN_BYTES = 16

_pages: dict[PageAddress, "ProgramPage"] = {}
_lock = threading.Lock()


def show_in_page(address: PageAddress, job: Job, name: str, spark_url: str | None) -> str:
    """Show a job in the page of this program, which is opened if there is none at this address.

    The page stays after the job's end, so that one can see why it has failed, and ends with the
    program.

    Args:
        address: Where the page is served; with port 0, all pages of this program are one.
        job: The job, which has not begun.
        name: The name that its user has given it.
        spark_url: The URL of its Spark UI. None: none.

    Returns:
        The URL of the job's page, with the token that opens it.

    Raises:
        OptionsError: See ``PagePort``.
    """
    with _lock:
        page = _pages.get(address)
        if page is None:
            page = _pages[address] = ProgramPage(address)
    return page.add(job, name, spark_url)


def close_pages() -> None:
    """Close all pages of this program, for tests."""
    with _lock:
        while _pages:
            _pages.popitem()[1].port.close()


class ProgramPage:
    """A page, its token, and the jobs that it shows. ``ShownJobs``. Threads: any.

    A token is needed even on this machine alone: other users of it can connect, too.

    Attributes:
        port: The port at which it is served.
        token: The token.
    """

    def __init__(self, address: PageAddress) -> None:
        self._jobs: dict[str, ShownJob] = {}
        self._spark_url: str | None = None
        self._lock = threading.Lock()
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.port = PagePort(address, self, script_name() or "this program", self.token)

    def add(self, job: Job, name: str, spark_url: str | None) -> str:
        """Show a job; see ``show_in_page``."""
        shown = ShownJob(
            job_id=job.job_id,
            name=name,
            record=job.record,
            job=job,
            # It waits for the end of the job, which a browser need not do.
            cancel=lambda: threading.Thread(target=job.cancel, daemon=True).start(),
            drain=job.drain,
            stacks=lambda: job.live.ask_for_stacks(),
            memory=lambda: job.live.ask_for_memory(),
            save=lambda path: job.make_savepoint(required_folder(SAVEPOINT_ARGUMENT, path)),
        )
        with self._lock:
            self._jobs[job.job_id] = shown
            self._spark_url = spark_url or self._spark_url
        self.port.look_at(job.job_id)
        return f"{self.port.url}jobs/{job.job_id}?token={self.token}"

    def all(self) -> Sequence[ShownJob]:
        """See ``ShownJobs``."""
        with self._lock:
            for job_id, job in list(self._jobs.items()):
                if job.job is not None and job.record.has_last_state:
                    # The page has what it shows of it; the plan and the rest of the job can go.
                    self._jobs[job_id] = dataclasses.replace(
                        job,
                        job=None,
                        cancel=_nothing,
                        drain=_nothing,
                        stacks=dict,
                        memory=dict,
                        save=_no_savepoint,
                    )
            ended_jobs = [job for job in self._jobs.values() if job.job is None]
            size = sum(job.record.events.size_bytes for job in ended_jobs)
            for number, job in enumerate(ended_jobs):
                if len(ended_jobs) - number <= MAX_ENDED and size <= MAX_BYTES_OF_ENDED:
                    break
                size -= job.record.events.size_bytes
                del self._jobs[job.job_id]
            return list(self._jobs.values())

    def spark_url(self) -> str | None:
        """See ``ShownJobs``."""
        return self._spark_url


def _nothing() -> None:
    """Do nothing: the job has ended."""


def _no_savepoint(path: str) -> int:
    raise RunnerError("the job has ended; beam-spark-savepoint copies what it has committed")
