"""What SDK harnesses send about bundles: metrics, residuals, data, timers, answers."""

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

from apache_beam.metrics.cells import HistogramData
from apache_beam.portability.api import beam_fn_api_pb2, metrics_pb2
from apache_beam.utils.histogram import Histogram, LinearBucket
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.beam.plugin.block_edges import reader_of
from beam_spark_runner.harness.bundle import Bundle, BundleResult
from beam_spark_runner.harness.remote.key_timers import DeclaredTimers, KeyTimers, declared_timers
from beam_spark_runner.harness.remote.sdk_metrics import HarnessMetrics
from beam_spark_runner.harness.remote.sdk_residuals import ResidualChecks
from beam_spark_runner.harness.sdf.splittable import SplittableInput
from beam_spark_runner.job.export.prometheus import JobMetrics, JobsCollector
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.monitoring import (
    element_counts,
    merge,
    relabelled,
    to_metric_results,
)
from beam_spark_runner.semantics.timers import NEVER_US, Instant
from tests.fuzz import coded
from tests.fuzz.targets.base import Messages, MessageTarget, PlacedTarget, Target
from tests.fuzz.targets.stages import Stage, stages_of

_SDK = "of a stranger"
_TYPES = (
    *("sum_int64", "sum_double", "distribution_int64", "distribution_double", "latest_int64"),
    *("latest_double", "top_n_int64", "bottom_n_int64", "progress", "set_string", "bounded_trie"),
    "histogram_int64",
)


class Metrics(MessageTarget[beam_fn_api_pb2.ProcessBundleResponse]):
    """The metrics of a bundle, from its end until a user or Prometheus reads them."""

    name = "metrics"
    share = 3.0

    def __init__(self, messages: Sequence[beam_fn_api_pb2.ProcessBundleResponse]) -> None:
        super().__init__(messages)
        found = {
            (each.urn, each.type): each for message in messages for each in message.monitoring_infos
        }
        self._infos = [*(found[key] for key in sorted(found)), _histogram()]

    def message(self, random_: random.Random) -> Message:
        infos = random_.choices(self._infos, k=random_.choice((1, 1, 2, 5)))
        response = beam_fn_api_pb2.ProcessBundleResponse(monitoring_infos=infos)
        if random_.random() < 0.3:
            info = random_.choice(response.monitoring_infos)
            info.type = f"beam:metrics:{random_.choice(_TYPES)}:v1"
        if random_.random() < 0.5:  # the payload alone
            info = random_.choice(response.monitoring_infos)
            info.payload = self.pool.changed_bytes(info.payload, random_)
            return cast(Message, response)
        return self.pool.mutated(response, random_)

    def take(self, message: beam_fn_api_pb2.ProcessBundleResponse) -> object:
        infos = HarnessMetrics(_SDK).sound(message.monitoring_infos)
        ids = {each.labels["PTRANSFORM"]: "new" for each in message.monitoring_infos if each.labels}
        merged = merge(infos)
        merge((*merged, *infos))
        relabelled(merged, ids)
        element_counts(merged)
        for only_users in (True, False):
            results = to_metric_results(merged, infos, step_names={}, user_metrics_only=only_users)
            results.query()
        return results.monitoring_infos()


class Exported(Metrics):
    """The metrics of a bundle as Prometheus reads them, as text."""

    name = "prometheus"
    share = 1.0

    def take(self, message: beam_fn_api_pb2.ProcessBundleResponse) -> object:
        infos = merge(HarnessMetrics(_SDK).sound(message.monitoring_infos))
        job: Any = SimpleNamespace(
            job_id="1",
            plan=SimpleNamespace(graph=SimpleNamespace(transforms={}), is_streaming=False),
            step_names={},
            watch=SimpleNamespace(status=None),
            attempted=lambda: infos,
        )
        registry = CollectorRegistry()
        registry.register(JobsCollector(lambda: [JobMetrics("name", job)]))
        text = generate_latest(registry).decode()
        return [family.name for family in text_string_to_metric_families(text)]


class Blocks(PlacedTarget):
    """Elements on the data stream, and then their way through the rows of an exchange."""

    name = "blocks"
    share = 3.0
    named = (MalformedBytesError,)

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__(
            [((each, sink), each.data(sink)) for each in stages for sink in each.sinks]
        )

    def take(self, place: tuple[Stage, TransformId], content: bytes) -> object:
        stage, sink = place
        reader = reader_of(stage.descriptor, sink, stage.coder(sink))
        return [len(values) for values, _ in reader.read(content)]


class Timers(PlacedTarget):
    """Timers on the data stream, until all have fired."""

    name = "timers"
    share = 2.0
    named = (MalformedBytesError,)

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__(list(self._real(stages)))

    @staticmethod
    def _real(stages: Sequence[Stage]) -> Iterator[tuple[Any, Sequence[bytes]]]:
        for stage in stages:
            declared = declared_timers(stage.descriptor, stage.coder(stage.source))
            for family in declared.families:
                yield (declared, family), stage.timers(family.transform, family.family)

    def take(self, place: tuple[DeclaredTimers, Any], content: bytes) -> object:
        declared, family = place
        timers = KeyTimers(declared)
        count = timers.apply(family, content)
        end = Instant(MAX_US, NEVER_US)
        for _ in range(count + 1):
            if not timers.pop(end):
                break
        return count


class Residuals(PlacedTarget):
    """Residuals of splittable DoFns, until they are processed again."""

    name = "residuals"
    share = 2.0

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__(
            [
                (each, [root.SerializeToString() for root in _residuals_of(each)])
                for each in stages
                if each.is_splittable
            ]
        )

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._places))
        stage, contents = self._places[number]
        root = beam_fn_api_pb2.DelayedBundleApplication.FromString(random_.choice(contents))
        element = super().case(random_)[2:] if random_.random() < 0.2 else root.application.element
        elements = [each.application.element for each in _residuals_of(stage)]
        root.application.element = coded.mutated(element, random_, elements)
        if random_.random() < 0.1:
            root.requested_time_delay.seconds = random_.choice((-1, 1 << 40, -(1 << 63)))
        return number.to_bytes(2, "big") + bytes(root.SerializeToString())

    def take(self, place: Stage, content: bytes) -> object:
        root = beam_fn_api_pb2.DelayedBundleApplication.FromString(content)
        coder = place.coder(place.source)
        ResidualChecks(coder).check([root])
        bundles = [BundleResult(monitoring_infos=(), residual_roots=(root,))]
        stage = SplittableInput(
            start_bundle=lambda: cast(Bundle, _Deferring(bundles)),
            on_completed=lambda result: None,
            input_coder=coder,
            collection="input",
            now_us=lambda: 0,
        )
        stage._bundle = cast(Bundle, _Deferring(bundles))
        stage.run_due()
        while stage.run_due():
            pass
        return stage.pending()


class _Deferring:
    """A bundle that leaves the residuals of the next result."""

    def __init__(self, results: list[BundleResult]) -> None:
        self._results = results

    def enter(self) -> None: ...
    def push(self, values: list[Any], origins: list[Any]) -> None: ...
    def flush(self) -> None: ...

    def finish(self) -> BundleResult:
        return self._results.pop() if self._results else BundleResult(monitoring_infos=())


def _residuals_of(stage: Stage) -> list[beam_fn_api_pb2.DelayedBundleApplication]:
    return [
        root
        for each in stage.responses
        for root in (
            *each.process_bundle.residual_roots,
            *each.process_bundle_split.residual_roots,
        )
    ]


def _histogram() -> metrics_pb2.MonitoringInfo:
    """Return a metric of a kind that none of the recorded pipelines has."""
    data = HistogramData(Histogram(LinearBucket(0, 10, 4)))
    for value in (-1, 5, 5, 39, 100):
        data.histogram.record(value)
    return metrics_pb2.MonitoringInfo(
        urn="beam:metric:user:histogram_int64:v1",
        type="beam:metrics:histogram_int64:v1",
        labels={"PTRANSFORM": "step", "NAMESPACE": "space", "NAME": "sizes"},
        payload=data.to_proto().SerializeToString(),
    )


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    stages = stages_of(messages)
    responses = [
        beam_fn_api_pb2.ProcessBundleResponse(
            monitoring_infos=each.process_bundle.monitoring_infos
            or each.process_bundle_progress.monitoring_infos
        )
        for _, each in messages.of(beam_fn_api_pb2.InstructionResponse)
    ]
    return [
        Metrics([each for each in responses if each.monitoring_infos]),
        Exported([each for each in responses if each.monitoring_infos]),
        Blocks(stages),
        Timers(stages),
        Residuals(stages),
    ]
