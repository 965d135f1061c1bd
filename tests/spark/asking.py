"""Steps that ask for stable or time-sorted input: as other SDKs write them, Python's cannot."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner import SparkPortableRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Asking(SparkPortableRunner):
    """Runs pipelines some of whose steps ask for something that the Python SDK does not know.

    Args:
        spark: the session; None: the options say which.
        stable: names of steps that ask for stable input.
        in_order: names of those that ask for input in the order of event time.
        expiring: names of those whose timer "end" notifies of the end of windows.
    """

    def __init__(
        self,
        spark: "SparkSession | None",
        *,
        stable: Collection[str] = (),
        in_order: Collection[str] = (),
        expiring: Collection[str] = (),
    ) -> None:
        super().__init__(spark=spark)
        self._stable, self._in_order, self._expiring = stable, in_order, expiring

    def run_portable_pipeline(self, pipeline: Any, options: Any) -> Any:
        missing = {*self._stable, *self._in_order, *self._expiring}
        for each in pipeline.components.transforms.values():
            name = each.unique_name
            if each.spec.urn == "beam:transform:pardo:v1" and name in missing:
                par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
                par_do.requires_stable_input = name in self._stable
                par_do.requires_time_sorted_input = name in self._in_order
                if name in self._expiring:
                    par_do.on_window_expiration_timer_family_spec = "ts-end"
                each.spec.payload = par_do.SerializeToString()
                missing.remove(name)
        assert not missing
        if self._stable:
            pipeline.requirements.append("beam:requirement:pardo:stable_input:v1")
        if self._in_order:
            pipeline.requirements.append("beam:requirement:pardo:time_sorted_input:v1")
        return super().run_portable_pipeline(pipeline, options)
