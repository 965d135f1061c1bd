"""First and last operation of a stage in an SDK harness with this package: blocks and chunks.

Beam's operations decode and encode one element at a time, and pass it on before they
read the next. These decode a whole block at once, and pass chunks to the steps of
``chunks``. Elements that are bytes, pairs or groups of bytes are encoded as ``columns``.

``sdk_worker_main`` imports this module because of ``--beam_plugin``.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from apache_beam.coders import BytesCoder, Coder, FloatCoder, StrUtf8Coder, WindowedValueCoder
from apache_beam.coders.coders import (
    LengthPrefixCoder,
    StateBackedIterableCoder,
    TupleCoder,
)
from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, operations
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.user_calls import map_all
from beam_spark_runner.harness.beam.chunk_edge import ChunkEdge
from beam_spark_runner.harness.beam.keyed import KeyedParDo
from beam_spark_runner.harness.beam.keyed_creation import use_keys
from beam_spark_runner.harness.beam.plugin.sdk_logging import sdk_logging
from beam_spark_runner.harness.codec.blocks import BlockReader, BlockWriter, GroupToken
from beam_spark_runner.harness.codec.columns import (
    ElementReader,
    ElementWriter,
    reader_for,
    writer_for,
)
from beam_spark_runner.harness.failures import charge
from beam_spark_runner.harness.values.constants import Kind
from beam_spark_runner.harness.values.opaque import decoded
from beam_spark_runner.portable.wire import coder_seen_by_the_runner
from beam_spark_runner.semantics.timers import END_OF_TIME

MARKING_SOURCE_URN = "beam_spark_runner:marking_source:v1"
BLOCK_SOURCE_URN = "beam_spark_runner:block_source:v1"
KEYED_SOURCE_URN = "beam_spark_runner:keyed_block_source:v1"
BLOCK_SINK_URN = "beam_spark_runner:block_sink:v1"
LOG_MARK_URN = "beam_spark_runner:log_mark:v1"
"""The urn of a MonitoringInfo with an integer: see ``SdkLogging.end_bundle``."""
KEY_CONTINUES, KEY_ENDS = b"\0", b"\1"
"""The first byte of each block for a keyed stage: whether the key ends with the block."""
_AT_ONCE = 128
_WAITING_BYTES = 1 << 16
_FLUSH_BYTES = 1 << 20
"""Beam's operations send 10 MB at a time: the runner would be idle until then."""

_CHANNEL_FACTORY = "data_channel_factory"  # since Beam 2.77
_CHANNEL = (
    _CHANNEL_FACTORY
    if _CHANNEL_FACTORY in inspect.signature(bundle_processor.DataInputOperation).parameters
    else "data_channel"
)
"""The parameter of Beam's operations for their data channel."""

_IoOperation = TypeVar("_IoOperation")
_Convert: TypeAlias = Callable[[Any], Any] | None  # None: values remain unchanged


def use_blocks(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
    """Make the operations of this module read and write the edges of a stage."""
    for transform in descriptor.transforms.values():
        if transform.spec.urn == urns.GRPC_SINK:
            transform.spec.urn = BLOCK_SINK_URN
        elif transform.spec.urn == urns.GRPC_SOURCE:
            transform.spec.urn = BLOCK_SOURCE_URN


def mark_lines(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
    """Make a source that ``use_blocks`` has not replaced report the end of a bundle's log lines."""
    for transform in descriptor.transforms.values():
        if transform.spec.urn == urns.GRPC_SOURCE:
            transform.spec.urn = MARKING_SOURCE_URN


def use_keys_here(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> bool:
    """Make a stage keep its state and timers in the harness, if it has a source of blocks.

    To be called after ``use_blocks``.

    Returns:
        Whether it has: then each block must begin with ``KEY_CONTINUES`` or ``KEY_ENDS``.
    """
    sources = [
        transform
        for transform in descriptor.transforms.values()
        if transform.spec.urn == BLOCK_SOURCE_URN
    ]
    if not sources:
        return False
    for source in sources:
        source.spec.urn = KEYED_SOURCE_URN
    use_keys(descriptor)
    descriptor.ClearField("timer_api_service_descriptor")
    return True


def reader_of(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, sink: str, coder: WindowedValueCoder
) -> ElementReader:
    """Return the reader with which the runner decodes a sink's elements."""
    is_ours = descriptor.transforms[sink].spec.urn == BLOCK_SINK_URN
    return reader_for(coder) if is_ours else BlockReader(coder)


def writer_of(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, source: str, coder: WindowedValueCoder
) -> ElementWriter:
    """Return the writer with which the runner encodes a source's elements."""
    is_ours = descriptor.transforms[source].spec.urn in (BLOCK_SOURCE_URN, KEYED_SOURCE_URN)
    return writer_for(coder) if is_ours else BlockWriter(coder)


class MarkingSource(bundle_processor.DataInputOperation):  # type: ignore[misc]
    """The root of a stage: Beam's source, which also reports the end of a bundle's log lines."""

    def monitoring_infos(
        self, transform_id: str, tag_to_pcollection_id: dict[str, str]
    ) -> dict[Any, Any]:
        """Add the last mark of the bundle's log lines; Beam calls this at the end of a bundle."""
        infos: dict[Any, Any] = super().monitoring_infos(transform_id, tag_to_pcollection_id)
        if sdk_logging is not None:
            mark = monitoring_infos.int64_counter(LOG_MARK_URN, sdk_logging.end_bundle())
            infos[monitoring_infos.to_key(mark)] = mark
        return infos


class BlockSource(MarkingSource):
    """The root of a stage, which reads blocks."""

    def prepare(self, reader: ElementReader, readers: Sequence[operations.Operation]) -> None:
        """Set what Beam's constructor does not take; called before ``setup``."""
        self._blocks = reader
        self._decode = _decoder(self.windowed_coder.wrapped_value_coder)
        self._readers = readers
        steps = [operation for operation in readers if not isinstance(operation, BlockSink)]
        self._step_name = steps[0].name_context.step_name if steps else None

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        self._edge = ChunkEdge(self.receivers[0], self._readers)

    def process_encoded(self, encoded_windowed_values: bytes) -> None:
        """Process a block."""
        send = self._edge.send
        for coded, origins in self._blocks.read(encoded_windowed_values):
            for start in range(0, len(coded), _AT_ONCE):
                some = coded[start : start + _AT_ONCE]
                self.index += len(some)
                send(self._decoded(some), origins[start : start + _AT_ONCE], Kind.OWN)

    def _decoded(self, coded: list[Any]) -> list[Any]:
        if self._decode is None:
            return coded
        try:
            return map_all(self._decode, coded)
        except Exception as error:
            if self._step_name is not None:
                charge(error, self._step_name)
            raise


class KeyedBlockSource(BlockSource):
    """The root of a keyed stage, whose blocks have marks."""

    @override
    def process_encoded(self, encoded_windowed_values: bytes) -> None:
        """Process a block with its mark."""
        start = self.index
        super().process_encoded(encoded_windowed_values[1:])
        for operation in self._readers:
            if isinstance(operation, KeyedParDo):
                operation.count(self.index - start)
                if encoded_windowed_values[:1] == KEY_ENDS:
                    operation.advance_key(END_OF_TIME)


class BlockSink(bundle_processor.DataOutputOperation):  # type: ignore[misc]
    """A leaf of a stage, which writes blocks.

    Single elements of a producer are buffered until there are enough for a block, or the bundle
    ends.
    """

    def prepare(self, writer: ElementWriter) -> None:
        """Set what Beam's constructor does not take; called before ``setup``."""
        self._blocks = writer
        self._encode = _encoder(self.windowed_coder.wrapped_value_coder)
        self._values: list[Any] = []  # encoded
        self._origins: list[WindowedValue] = []
        self._room = _WAITING_BYTES

    def process(self, element: WindowedValue) -> None:
        """Take one element."""
        self.process_one(element.value, element)

    @override
    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        self._write(values if self._encode is None else map_all(self._encode, values), origins)

    @override
    def process_one(self, value: Any, origin: WindowedValue) -> None:
        """The value is encoded at once, and not kept."""
        coded = value if self._encode is None else self._encode(value)
        self._values.append(coded)
        self._origins.append(origin)
        self._room -= len(coded) if type(coded) is bytes else _size(coded)
        if self._room < 0 or len(self._values) >= _AT_ONCE:
            self._write_waiting()

    def finish(self) -> None:
        self._write_waiting()
        super().finish()

    def _write_waiting(self) -> None:
        values, origins = self._values, self._origins
        self._values, self._origins, self._room = [], [], _WAITING_BYTES
        if values:
            self._write(values, origins)

    def _write(self, coded: list[Any], origins: list[WindowedValue]) -> None:
        pieces: list[bytes] = []
        self._blocks.write(coded, origins, pieces)
        self.output_stream.write(b"".join(pieces))
        if self.output_stream.size() >= _FLUSH_BYTES:
            self.output_stream.flush()


def _size(coded: Any) -> int:
    """Return the size of an encoded element in bytes."""
    if isinstance(coded, tuple):
        return sum(map(_size, coded))
    return len(coded) if isinstance(coded, bytes) else 8


def _decoder(coder: Coder) -> _Convert:
    """Return the conversion from values in blocks to values that user code gets."""
    if isinstance(coder, StateBackedIterableCoder):
        return _group_decoder(coder)
    if isinstance(coder, LengthPrefixCoder):
        decode: _Convert = coder.value_coder().get_impl().decode
        return decode
    if isinstance(coder, StrUtf8Coder):
        return bytes.decode
    return _converter(coder, _decoder)


def _group_decoder(coder: StateBackedIterableCoder) -> Callable[[Any], Any]:
    (value_coder,) = coder._get_component_coders()
    decode, impl, read_state = _decoder(value_coder), value_coder.get_impl(), coder._read_state

    def decode_group(group: list[bytes] | GroupToken) -> Any:
        if type(group) is GroupToken:
            return read_state(bytes(group), impl)
        return group if decode is None else decoded(group, decode)  # type: ignore[arg-type]

    return decode_group


def _encoder(coder: Coder) -> _Convert:
    """Return the conversion from values of user code to values in blocks."""
    if isinstance(coder, LengthPrefixCoder):
        encode: _Convert = coder.value_coder().get_impl().encode
        return encode
    if isinstance(coder, StrUtf8Coder):
        return str.encode
    if isinstance(coder, BytesCoder):
        return _bytes_only
    return _converter(coder, _encoder)


def _bytes_only(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, not {type(value).__name__}")
    return value


def _converter(coder: Coder, of_part: Callable[[Coder], _Convert]) -> _Convert:
    if isinstance(coder, (BytesCoder, FloatCoder)):
        return None
    if not isinstance(coder, TupleCoder):
        raise InvariantError(f"{coder} is no coder of an edge")
    first, second = map(of_part, coder.coders())
    if first is None and second is None:
        return None
    if first is None:

        def convert_value(pair: Any) -> tuple[Any, Any]:
            key, value = pair  # and no third one, which would be lost
            return key, second(value)  # type: ignore[misc]

        return convert_value
    if second is None:

        def convert_key(pair: Any) -> tuple[Any, Any]:
            key, value = pair
            return first(key), value

        return convert_key

    def convert(pair: Any) -> tuple[Any, Any]:
        key, value = pair
        return first(key), second(value)

    return convert


def _create(
    kind: Callable[..., _IoOperation],
    factory: Any,
    transform_id: str,
    transform: Any,
    port: beam_fn_api_pb2.RemoteGrpcPort,
    consumers: Mapping[str, Sequence[operations.Operation]],
) -> _IoOperation:
    """Create an operation as ``create_source_runner`` and ``create_sink_runner`` of Beam do."""
    channel = functools.partial(factory.data_channel_factory.create_data_channel, port)
    return kind(
        common.NameContext(transform.unique_name, transform_id),
        transform.unique_name,
        consumers,
        factory.counter_factory,
        factory.state_sampler,
        factory.get_coder(port.coder_id),
        transform_id=transform_id,
        **{_CHANNEL: channel if _CHANNEL == _CHANNEL_FACTORY else channel()},
    )


def _coder_of_blocks(
    factory: Any, port: beam_fn_api_pb2.RemoteGrpcPort, operation: BlockSource | BlockSink
) -> WindowedValueCoder:
    """Return the coder of blocks: values as the runner sees them, but decoded windows."""
    coder = coder_seen_by_the_runner(factory.descriptor, port.coder_id)
    return WindowedValueCoder(coder.wrapped_value_coder, operation.windowed_coder.window_coder)


def _create_source_of(
    kind: type[BlockSource],
    factory: Any,
    transform_id: str,
    transform: Any,
    port: beam_fn_api_pb2.RemoteGrpcPort,
    consumers: Mapping[str, Sequence[operations.Operation]],
) -> BlockSource:
    operation = _create(kind, factory, transform_id, transform, port, consumers)
    operation.prepare(
        reader_for(_coder_of_blocks(factory, port, operation)),
        [reader for readers in consumers.values() for reader in readers],
    )
    return operation


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    MARKING_SOURCE_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_beams_source(*arguments: Any) -> MarkingSource:
    return _create(MarkingSource, *arguments)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    BLOCK_SOURCE_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_source(*arguments: Any) -> BlockSource:
    return _create_source_of(BlockSource, *arguments)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    KEYED_SOURCE_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_keyed_source(*arguments: Any) -> BlockSource:
    return _create_source_of(KeyedBlockSource, *arguments)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    BLOCK_SINK_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_sink(
    factory: Any,
    transform_id: str,
    transform: Any,
    port: beam_fn_api_pb2.RemoteGrpcPort,
    consumers: Mapping[str, Sequence[operations.Operation]],
) -> BlockSink:
    operation = _create(BlockSink, factory, transform_id, transform, port, consumers)
    operation.prepare(writer_for(_coder_of_blocks(factory, port, operation)))
    return operation
