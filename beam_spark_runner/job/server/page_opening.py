"""The page of a job server's jobs, which is imported only if there is one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from beam_spark_runner.job.access import client_token
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.options.server_options import ServerConfig

if TYPE_CHECKING:
    from beam_spark_runner.job.page.page_port import PagePort


def open_page(config: ServerConfig, jobs: Jobs, spark_url: Callable[[], str | None]) -> "PagePort":
    """Serve the page; viewers need the token that clients need, and TLS is the server's.

    Args:
        config: The configuration of the server, whose ``page`` is set.
        jobs: The jobs.
        spark_url: Returns the URL of the Spark UI.

    Raises:
        OptionsError: See ``PagePort``.
    """
    # Imported here: it needs an extra, and takes a quarter of a second.
    from beam_spark_runner.job.page.page_port import PagePort
    from beam_spark_runner.job.server.listed_jobs import ListedJobs

    assert config.page is not None
    return PagePort(
        config.page,
        ListedJobs(jobs, spark_url),
        "Job server",
        client_token(config.access),
        config.access,
    )
