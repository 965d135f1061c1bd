"""First and last operations of a stage in the embedded harness, without encoding of elements."""

from collections.abc import Callable
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.beam.chunk_edge import ChunkEdge
from beam_spark_runner.harness.bundle import Receiver
from beam_spark_runner.harness.values.constants import Kind
from beam_spark_runner.portable.descriptor import SINK_URN, SOURCE_URN


class SourceOperation(bundle_processor.DataInputOperation):  # type: ignore[misc]
    """The root of a stage, which passes elements on one by one or in chunks."""

    def __init__(self, name: Any, step_name: Any, consumers: Any, *args: Any) -> None:
        super().__init__(name, step_name, consumers, *args)
        self._readers = [reader for readers in consumers.values() for reader in readers]

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        (receiver,) = self.receivers
        receiver.output_sampler = data_sampler  # Beam's operation has none for its output
        self._edge = ChunkEdge(receiver, self._readers)

    @override
    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        self._edge.send(values, origins, Kind.OWN)


class SinkOperation(bundle_processor.RunnerIOOperation):  # type: ignore[misc]
    """A leaf of a stage. ``deliver_to`` replaces ``process`` by the receiver's method.

    Beam's compiled code looks ``process`` up on the instance, so that it calls the
    receiver directly.
    """

    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        """Raise an error; ``deliver_to`` replaces this method."""
        raise InvariantError("a sink got elements before its bundle began")

    @override
    def process_one(self, value: Any, origin: WindowedValue) -> None:
        self.process(origin.with_value(value))

    def deliver_to(self, receiver: Receiver) -> None:
        """Pass the elements of the bundle that begins to ``receiver``."""
        accept_chunk = receiver.accept_chunk
        self.process = receiver.accept
        self.process_chunk = (  # type: ignore[method-assign]
            lambda values, origins, kind: accept_chunk(values, origins)
        )


def _create_edge(
    operation: Callable[..., Any],
    factory: Any,
    transform_id: str,
    transform: Any,
    port: beam_fn_api_pb2.RemoteGrpcPort,
    consumers: dict[str, list[Any]],
) -> Any:
    return operation(
        common.NameContext(transform.unique_name, transform_id),
        transform.unique_name,
        consumers,
        factory.counter_factory,
        factory.state_sampler,
        factory.get_coder(port.coder_id),
        transform_id,
        None,  # the data channel, by position: Beam 2.77 renamed it
    )


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    SOURCE_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_source(*args: Any) -> Any:
    return _create_edge(SourceOperation, *args)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    SINK_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_sink(*args: Any) -> Any:
    return _create_edge(SinkOperation, *args)
