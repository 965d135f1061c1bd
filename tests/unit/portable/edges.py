"""The smallest edges that let Beam's BundleProcessor run a described stage in this process."""

from collections.abc import Iterable
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import operations
from apache_beam.runners.worker.bundle_processor import BeamTransformFactory, BundleProcessor
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.portable.stage_description import StageDescription

SOURCE_URN = "test:source:v1"
SINK_URN = "test:sink:v1"


class _Source(operations.Operation):  # type: ignore[misc]
    def __init__(self, context: Any, factory: Any, consumers: Any, coder: Any) -> None:
        super().__init__(context, None, factory.counter_factory, factory.state_sampler)
        self.coder = coder
        self.fed = [consumer for consumers_ in consumers.values() for consumer in consumers_]

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        self.receivers = [
            operations.ConsumerSet.create(
                self.counter_factory,
                self.name_context.step_name,
                0,
                self.fed,
                self.coder,
                self._get_runtime_performance_hints(),
                self.get_output_batch_converter(),
            )
        ]

    def process(self, o: WindowedValue) -> None:
        self.output(o)


class _Sink(operations.Operation):  # type: ignore[misc]
    def __init__(self, context: Any, factory: Any, coder: Any) -> None:
        super().__init__(context, None, factory.counter_factory, factory.state_sampler)
        self.coder = coder
        self.seen: list[WindowedValue] = []

    def process(self, o: WindowedValue) -> None:
        self.seen.append(self.coder.decode(self.coder.encode(o)))


@BeamTransformFactory.register_urn(SOURCE_URN, beam_fn_api_pb2.RemoteGrpcPort)  # type: ignore[untyped-decorator]
def _source(factory: Any, id_: str, proto: Any, port: Any, consumers: Any) -> _Source:
    context = operations.common.NameContext(proto.unique_name, id_)
    return _Source(context, factory, consumers, factory.get_coder(port.coder_id))


@BeamTransformFactory.register_urn(SINK_URN, beam_fn_api_pb2.RemoteGrpcPort)  # type: ignore[untyped-decorator]
def _sink(factory: Any, id_: str, proto: Any, port: Any, consumers: Any) -> _Sink:
    context = operations.common.NameContext(proto.unique_name, id_)
    return _Sink(context, factory, factory.get_coder(port.coder_id))


def processor_for(description: StageDescription) -> Any:
    return BundleProcessor(frozenset(), description.descriptor(), None, None)


def run(
    description: StageDescription, values: Iterable[WindowedValue]
) -> dict[PCollectionId, list[WindowedValue]]:
    """Push ``values`` through the stage; what its sinks saw, after a trip through their coders."""
    processor = processor_for(description)
    source = processor.ops[description.source]
    context = type("Context", (), {"delayed_applications": [], "output_sampler": None})()
    processor.state_sampler.start()
    try:
        for operation in reversed(processor.ops.values()):
            operation.execution_context = context
            operation.start()
        for value in values:
            source.process(value)
        for operation in processor.ops.values():
            operation.finish()
    finally:
        processor.state_sampler.stop_if_still_running()
    return {collection: processor.ops[sink].seen for sink, collection in description.sinks.items()}
