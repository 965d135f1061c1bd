"""The jobs of a server, as the page shows them."""

from collections.abc import Callable, Sequence
from functools import partial

from beam_spark_runner.core.errors import SAVEPOINT_ARGUMENT
from beam_spark_runner.job.page.shown_job import ShownJob
from beam_spark_runner.job.server.client_options import by_name, check_place
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.options.values import required_folder


class ListedJobs:
    """``ShownJobs`` of a server. Threads: any.

    Args:
        jobs: The jobs.
        spark_url: Returns the URL of the Spark UI.
    """

    def __init__(self, jobs: Jobs, spark_url: Callable[[], str | None]) -> None:
        self._jobs, self._spark_url = jobs, spark_url
        self._names: dict[str, str] = {}

    def all(self) -> Sequence[ShownJob]:
        """See ``ShownJobs``."""
        jobs = self._jobs.all()
        names = {job.job_id: self._names.get(job.job_id) or _name_of(job) for job in jobs}
        self._names = names
        return [self._shown_job(job, names[job.job_id]) for job in jobs]

    def spark_url(self) -> str | None:
        """See ``ShownJobs``."""
        return self._spark_url()

    def _shown_job(self, job: ServedJob, name: str) -> ShownJob:
        measured = job.job_metrics()
        return ShownJob(
            job_id=job.job_id,
            name=name,
            record=job.record,
            job=None if measured is None else measured.job,
            cancel=partial(self._jobs.cancel, job.job_id),
            drain=job.drain,
            memory=dict if measured is None else lambda: measured.job.live.ask_for_memory(),
            stacks=dict if measured is None else lambda: measured.job.live.ask_for_stacks(),
            save=partial(_save, job),
        )


def _name_of(job: ServedJob) -> str:
    # --job_name comes first, since Beam's own client names all jobs "job".
    return str(by_name(job.options).get("job_name") or job.submitted.name)


def _save(job: ServedJob, path: str) -> int:
    folder = required_folder(SAVEPOINT_ARGUMENT, path)
    check_place(SAVEPOINT_ARGUMENT, folder)
    return job.make_savepoint(folder)
