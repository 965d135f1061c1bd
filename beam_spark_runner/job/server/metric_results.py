"""The metrics of a job, in the form of Beam's Job API."""

from collections.abc import Iterable, Sequence

from apache_beam.portability.api import beam_job_api_pb2, metrics_pb2


def metric_results(
    attempted: Iterable[bytes],
    committed: Iterable[bytes],
    both: Sequence[metrics_pb2.MonitoringInfo] = (),
) -> beam_job_api_pb2.MetricResults:
    """Return metrics.

    Args:
        attempted: Those of all attempts, serialised MonitoringInfos.
        committed: Those that are committed.
        both: What belongs to both.
    """
    parse = metrics_pb2.MonitoringInfo.FromString
    return beam_job_api_pb2.MetricResults(
        attempted=[*map(parse, attempted), *both], committed=[*map(parse, committed), *both]
    )
