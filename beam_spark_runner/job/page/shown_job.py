"""What the page needs of a job, whoever runs it: a program, or a job server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.watching.record import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """One job.

    Attributes:
        job_id: The id of the job.
        name: The name that its user has given it; "": none.
        record: Its states and messages.
        job: The job while it runs, and for some time after its end. None: it has not begun, or
            has ended.
        cancel: Begins to cancel the job; does not wait.
        drain: Lets the sources of a streaming job end. Raises a RunnerError if it cannot.
        stacks: Returns what its running tasks do now, with their stacks, by worker; None: a worker
            has not answered. Takes seconds.
        memory: Likewise, memory profiles of workers.
        save: Makes a savepoint in a folder; returns the number of its epoch. Raises a RunnerError.
    """

    job_id: str
    name: str
    record: JobRecord
    job: Job | None
    cancel: Callable[[], object]
    drain: Callable[[], object]
    save: Callable[[str], int]
    stacks: Callable[[], Mapping[str, str | None]]
    memory: Callable[[], Mapping[str, str | None]]


class ShownJobs(Protocol):
    """The jobs that a page shows. Threads: any."""

    def all(self) -> Sequence[ShownJob]:
        """Return all jobs, the oldest first."""
        ...

    def spark_url(self) -> str | None:
        """Return the URL of the Spark UI. None: there is none, or it is not known."""
        ...
