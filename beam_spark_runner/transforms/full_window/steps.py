"""The transforms of ``FullWindowPartition``.

Each is a composite with a URN of SparkPortableRunner, which executes its payload, that of a ParDo.
Other runners execute its expansion.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders import registry
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.pvalue import AsIter, PCollection
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindows
from typing_extensions import override

from beam_spark_runner.core.urns import FULL_WINDOW_PARTITION, FULL_WINDOW_PARTITION_BY_KEY
from beam_spark_runner.transforms.full_window import checks
from beam_spark_runner.transforms.full_window.coding import ElementCodec
from beam_spark_runner.transforms.full_window.functions import PartitionDoFn, SortPartitionDoFn
from beam_spark_runner.transforms.full_window.whole import EncodeDoFn, KeyDoFn, OnePartitionDoFn


class FoldPartition(beam.PTransform):  # type: ignore[misc]
    """Computes results of the records of each partition, in the global window.

    Args:
        name: The default label of the transform.
        fn: The DoFn that computes the results.
        type_of: Returns the type of results for the type of records.
        arguments: The positional and keyword arguments of user code after the records, side inputs
            among them.
        is_keyed: Whether a partition has the values of one key.
    """

    def __init__(
        self,
        name: str,
        fn: PartitionDoFn,
        type_of: Callable[[Any], Any],
        arguments: tuple[Sequence[Any], Mapping[str, Any]] = ((), {}),
        *,
        is_keyed: bool,
    ) -> None:
        super().__init__(name)
        self._fn = fn
        self._type_of = type_of
        self._arguments = arguments
        self._is_keyed = is_keyed

    @override
    def expand(self, pcoll: PCollection) -> PCollection:
        checks.check_input(pcoll, _where(pcoll), is_keyed=self._is_keyed)
        args, kwargs = self._arguments
        checks.check_side_inputs([*args, *kwargs.values()], _where(pcoll))
        if not self._is_keyed:
            type_ = self._type_of(pcoll.element_type)
            return pcoll | _Partitions(self._fn, args, kwargs, _Results(type_))
        key, value = checks.types_of_pair(pcoll.element_type)
        return (
            _in_global_window(pcoll)
            | beam.GroupByKey()
            | _Keys(
                KeyDoFn(self._fn),
                args,
                kwargs,
                _Results(typehints.Tuple[key, self._type_of(value)]),
            )
        )


class SortPartition(beam.PTransform):  # type: ignore[misc]
    """Emits the records of each partition in order.

    Args:
        name: The default label of the transform.
        field: The ``field`` argument of ``sort_partition``, for checks.
        key: Returns the key of a record.
        descends: Whether the largest key comes first.
        is_keyed: Whether a partition has the values of one key.
    """

    def __init__(
        self,
        name: str,
        field: Any,
        key: Callable[[Any], Any],
        *,
        descends: bool,
        is_keyed: bool,
    ) -> None:
        super().__init__(name)
        self._field = field
        self._key = key
        self._descends = descends
        self._is_keyed = is_keyed

    @override
    def expand(self, pcoll: PCollection) -> PCollection:
        checks.check_input(pcoll, _where(pcoll), is_keyed=self._is_keyed)
        type_ = pcoll.element_type or typehints.Any
        key_type, record_type = checks.types_of_pair(type_) if self._is_keyed else (None, type_)
        checks.check_sortable(self._field, record_type, _where(pcoll))
        codec = ElementCodec(
            registry.get_coder(record_type), pcoll.windowing.windowfn.get_window_coder()
        )
        fn = SortPartitionDoFn(
            self._key,
            descends=self._descends,
            memory_bytes=checks.sort_memory_bytes(pcoll.pipeline.options),
            codec=codec,
        )
        if not self._is_keyed:
            return pcoll | _Partitions(fn, (), {}, _Results(type_, pcoll.windowing, codec))
        coded = pcoll | "Encode" >> beam.ParDo(EncodeDoFn(codec, is_keyed=True)).with_output_types(
            typehints.Tuple[key_type, bytes]
        )
        results = _Results(type_, pcoll.windowing)
        return _in_global_window(coded) | beam.GroupByKey() | _Keys(KeyDoFn(fn), (), {}, results)


class _ParDo(beam.ParDo):  # type: ignore[misc]
    """A ParDo that declares the type and windowing of its results.

    Args:
        fn: The DoFn.
        args: The positional arguments of ``fn``, side inputs among them.
        kwargs: The keyword arguments of ``fn``.
        results: The type and windowing of results.
    """

    def __init__(
        self,
        fn: beam.DoFn,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        results: "_Results",
    ) -> None:
        super().__init__(fn, *args, **kwargs)
        self._results = results
        self.payload: Any = None  # set if the step was read from a proto

    def payload_for(self, context: Any, **extra: Any) -> Any:
        """Return the payload: that of a ParDo."""
        if self.payload is not None:
            return self.payload
        return beam.ParDo.to_runner_api_parameter(self, context, **extra)[1]

    @override
    def infer_output_type(self, input_type: Any) -> Any:
        return self._results.type

    @override
    def get_windowing(self, inputs: Any) -> Any:
        return self._results.windowing


class _Results(NamedTuple):
    """The type and windowing of results.

    Attributes:
        type: The type of a result.
        windowing: The windowing of the results.
        codec: Encodes records that other runners must pass on with their timestamp and windows.
    """

    type: Any
    windowing: Windowing = Windowing(GlobalWindows())
    codec: ElementCodec | None = None


class _Partitions(_ParDo):
    @override
    def default_label(self) -> str:
        return "Partitions"

    @override
    def to_runner_api_parameter(self, context: Any, **extra: Any) -> tuple[str, Any]:
        return FULL_WINDOW_PARTITION, self.payload_for(context, **extra)

    def expand(self, pcoll: PCollection) -> PCollection:
        """Process all elements as one partition, on runners that do not expose partitions."""
        args, kwargs = self.raw_side_inputs
        records, codec = pcoll, self._results.codec
        if codec is not None:
            encode = EncodeDoFn(codec, is_keyed=False)
            records = pcoll | "Encode" >> beam.ParDo(encode).with_output_types(bytes)
        whole = AsIter(_in_global_window(records))
        run = _ParDo(OnePartitionDoFn(self.fn), (whole, *args), kwargs, self._results)
        return pcoll.pipeline | beam.Impulse() | run


class _Keys(_ParDo):
    @override
    def default_label(self) -> str:
        return "Keys"

    @override
    def to_runner_api_parameter(self, context: Any, **extra: Any) -> tuple[str, Any]:
        return FULL_WINDOW_PARTITION_BY_KEY, self.payload_for(context, **extra)

    @override
    def expand(self, pcoll: PCollection) -> PCollection:
        args, kwargs = self.raw_side_inputs
        return pcoll | _ParDo(self.fn, args, kwargs, self._results)


def _register(kind: type[_ParDo], urn: str) -> None:
    """Let Beam construct such a step from a pipeline's proto, as some runners do."""

    def from_payload(proto: Any, payload: Any, context: Any) -> _ParDo:
        # Beam treats its side inputs as main inputs, and keeps their names. So the payload, which
        # refers to these names, is kept as it is.
        read = beam.ParDo.from_runner_api_parameter(proto, payload, context)
        step = kind(read.fn, (), {}, _Results(typehints.Any))
        step.payload = payload
        return step

    beam.PTransform.register_urn(urn, beam_runner_api_pb2.ParDoPayload, from_payload)


_register(_Partitions, FULL_WINDOW_PARTITION)
_register(_Keys, FULL_WINDOW_PARTITION_BY_KEY)


def _where(pcoll: PCollection) -> str:
    """Return the full name of the transform that is being applied."""
    name: str = pcoll.pipeline.transforms_stack[-1].full_label
    return name


def _in_global_window(pcoll: PCollection) -> PCollection:
    if pcoll.windowing.is_default():
        return pcoll
    return pcoll | "One window" >> beam.WindowInto(GlobalWindows())
