"""The address at which metrics are served: options of the runner and of the job server."""

from dataclasses import dataclass

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import OptionsError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """A port (0: any free one), and the address of this machine at which the server listens."""

    port: int
    host: str = LOOPBACK


def metrics_address(port: int | None, host: str | None) -> MetricsAddress | None:
    """Check ``--metrics_port`` and ``--metrics_host``; None: metrics are not served.

    Raises:
        OptionsError: An option is wrong, or has no effect.
    """
    if port is None:
        if host:
            raise OptionsError("metrics_host", "has no effect unless --metrics_port is set")
        return None
    if not 0 <= port <= 65535:
        raise OptionsError("metrics_port", f"{port} is not a port: 0 to 65535")
    return MetricsAddress(port, host or LOOPBACK)


def metrics_of_program(options: PipelineOptions, job_endpoint: str | None) -> MetricsAddress | None:
    """Read the options of a program that runs pipelines; see ``metrics_address``.

    Args:
        options: A view of the options that this runner declares, or a program in its place.
        job_endpoint: HOST:PORT of the job server; None: the pipeline runs in this process.
    """
    port, host = getattr(options, "metrics_port", None), getattr(options, "metrics_host", None)
    if job_endpoint is not None and (port is not None or host):
        raise OptionsError(
            "metrics_port" if port is not None else "metrics_host",
            "has no effect with --job_endpoint: the job server has an option of this name, for all "
            "of its jobs",
        )
    return metrics_address(port, host)
