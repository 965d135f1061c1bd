"""Checks the metrics that an SDK harness sends, before anything keeps or merges them."""

import logging
from collections.abc import Iterable

from apache_beam.portability.api import metrics_pb2

from beam_spark_runner.harness.beam.plugin.block_edges import LOG_MARK_URN
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.metric_values import counter_value, value_of
from beam_spark_runner.portable.monitoring import MAX_METRICS, name_of

_LOGGER = logging.getLogger(__name__)
_MAX_NAMED = 1_000


class HarnessMetrics:
    """Passes on the metrics of one SDK harness, except those that are malformed or too large.

    A metric that is dropped never fails its bundle. It is named in one warning.

    Threads: any.

    Args:
        sdk: The name of the SDK, for the warning.
    """

    def __init__(self, sdk: str) -> None:
        self._sdk = sdk
        self._names_in_log: set[str] = set()

    def forget(self) -> None:
        """Begin another job, whose metrics are named again."""
        self._names_in_log.clear()

    def sound(self, infos: Iterable[metrics_pb2.MonitoringInfo]) -> list[bytes]:
        """Serialise the metrics that can be decoded, without the mark of the bundle's log lines."""
        coded_infos: list[bytes] = []
        for info in infos:
            if info.urn == LOG_MARK_URN:
                continue
            if len(coded_infos) >= MAX_METRICS:
                self._warn(info, f"a bundle has more than {MAX_METRICS} metrics")
                break
            try:
                value_of(info)
            except MalformedBytesError as error:
                self._warn(info, str(error))
            else:
                coded_infos.append(info.SerializeToString())
        return coded_infos

    def counter(self, info: metrics_pb2.MonitoringInfo) -> int | None:
        """Return the value of a counter; None: it is malformed."""
        try:
            return counter_value(info)
        except MalformedBytesError as error:
            self._warn(info, str(error))
            return None

    def _warn(self, info: metrics_pb2.MonitoringInfo, problem: str) -> None:
        name = name_of(info)
        if name in self._names_in_log or len(self._names_in_log) >= _MAX_NAMED:
            return
        self._names_in_log.add(name)
        _LOGGER.warning(
            "the SDK %s has sent a value of the metric %s that is not counted: %s (later ones of "
            "this metric are not named)",
            self._sdk,
            name,
            problem,
        )
