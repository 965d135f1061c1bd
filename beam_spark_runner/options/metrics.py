"""Where metrics are served: options of the runner and of the job server."""

from dataclasses import dataclass

from beam_spark_runner.core.errors import OptionsError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """A port, 0 for any that is free, and the address of this machine at which it listens."""

    port: int
    host: str = LOOPBACK


def metrics_address(port: int | None, host: str | None) -> MetricsAddress | None:
    """Check ``--metrics_port`` and ``--metrics_host``; None: metrics are not served.

    Raises:
        OptionsError: one is wrong.
    """
    if port is None:
        if host:
            raise OptionsError("metrics_host", "has no effect unless --metrics_port is set")
        return None
    if not 0 <= port <= 65535:
        raise OptionsError("metrics_port", f"{port} is no port")
    return MetricsAddress(port, host or LOOPBACK)
