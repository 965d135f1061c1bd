"""Opens the session of a pipeline, and says so on the pipeline's line."""

from typing import Any

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.driving.session import Session
from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.watching.progress_line import Line
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.values import IN_PROCESS
from beam_spark_runner.spark.session.announced import session_to_open
from beam_spark_runner.spark.session.open_session import open_session

_SHOWN_URLS: set[str] = set()
"""The addresses of Spark UIs that users of this process have seen."""


def open_and_show(config: RunnerConfig, given_session: Any, line: Line | None) -> Session:
    """Open a session, see ``open_session``, and show the address of the Spark UI, once.

    Args:
        config: The options of the pipeline.
        given_session: The session that the runner was given. None: none.
        line: Where the progress of the pipeline is shown. None: nowhere.

    Raises:
        SparkSetupError: No usable Spark.
        OptionsError: An option contradicts the session.
    """
    if config.spark_master_url == IN_PROCESS:
        if given_session is not None:
            raise OptionsError(
                "spark_master_url", f"{IN_PROCESS} uses no SparkSession, but the runner has got one"
            )
        return InProcessSession()
    if line is None:
        return open_session(config, given_session)
    text = session_to_open(config, given_session)
    line.show(lambda: [text])
    session = open_session(config, given_session)
    if (url := session.ui_url()) and url not in _SHOWN_URLS:
        _SHOWN_URLS.add(url)
        line.say(f"Spark UI: {url}")
    return session
