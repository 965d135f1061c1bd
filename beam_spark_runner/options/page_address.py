"""The address at which the page for jobs is served: options of the runner and of the job server."""

import importlib.util
from dataclasses import dataclass

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.metrics_address import LOOPBACK

_LIBRARIES = ("starlette", "uvicorn", "jinja2")  # of the extra ``page``


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Where the page listens.

    Attributes:
        port: The port; 0: any free one.
        host: An address of this machine.
        is_read_only: Whether jobs cannot be cancelled or drained from the page.
    """

    port: int
    host: str = LOOPBACK
    is_read_only: bool = False


def page_address(
    port: int | None, host: str | None = None, *, is_read_only: bool = False
) -> PageAddress | None:
    """Check the options of the page; None: it is not served.

    Raises:
        OptionsError: An option is wrong, or has no effect.
    """
    if port is None:
        for name, is_set in (("job_page_host", host), ("job_page_read_only", is_read_only)):
            if is_set:
                raise OptionsError(name, "has no effect unless --job_page_port is set")
        return None
    if not 0 <= port <= 65535:
        raise OptionsError("job_page_port", f"{port} is not a port: 0 to 65535")
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise OptionsError(
            "job_page_port",
            f"needs {', '.join(missing)}: pip install 'beam-spark-runner[page]'",
        )
    return PageAddress(port, host or LOOPBACK, is_read_only)


def page_of_program(options: PipelineOptions, job_endpoint: str | None) -> PageAddress | None:
    """Read the options of a program that runs pipelines; see ``page_address``.

    Args:
        options: A view of the options that this runner declares, or a program in its place.
        job_endpoint: HOST:PORT of the job server; None: the pipeline runs in this process.
    """
    port = getattr(options, "job_page_port", None)
    is_read_only = bool(getattr(options, "job_page_read_only", False))
    if job_endpoint is not None and (port is not None or is_read_only):
        raise OptionsError(
            "job_page_port" if port is not None else "job_page_read_only",
            "has no effect with --job_endpoint: the job server has an option of this name, for all "
            "of its jobs",
        )
    return page_address(port, is_read_only=is_read_only)
