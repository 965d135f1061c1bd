"""Coders for edges between the runner and SDK harnesses whose coders it does not know.

Elements of an SDK harness may have coders that exist only there. So the SDK
prefixes each key, value or element with its length, and the runner treats it
as bytes. The rows are the same as those of the embedded harness: a value
in a row is the outer encoding of an element, and a length with the bytes
after it is the nested encoding of bytes.

The runner has to know when windows end. So an SDK prefixes windows whose coder may exist only
there with their largest timestamp, and with a length.

Source: Beam ``LengthPrefixUnknownCoders``, ``WireCoders``; proto ``StandardCoders.CUSTOM_WINDOW``.
"""

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from apache_beam.coders import BytesCoder, Coder, FloatCoder, IterableCoder, TupleCoder
from apache_beam.coders.coders import (
    GlobalWindowCoder,
    IntervalWindowCoder,
    LengthPrefixCoder,
    TimestampPrefixingOpaqueWindowCoder,
    TimestampPrefixingWindowCoder,
    WindowedValueCoder,
)
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError, InvariantError
from beam_spark_runner.core.ids import CoderId, EnvironmentId
from beam_spark_runner.core.varint import read_varint
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.environment_facts import is_of_java

_PREFIXED = frozenset({urns.CODER_BYTES, urns.CODER_STRING, urns.CODER_LENGTH_PREFIX})
"""Coders whose nested encoding begins with a length already."""
_TIMESTAMP_BYTES = 8
_CUSTOM_OF_GO = "beam:go:coder:custom:v1"
"""A coder that writes a length itself, in place of the one of a length-prefix coder."""
RUNNERS_CODERS = "wire:"
"""The ids of the runner's own coders begin so, and no others: ``portable.pipeline`` checks it."""
_ITERABLES = frozenset({urns.CODER_ITERABLE, urns.CODER_STATE_BACKED_ITERABLE})


def add_coders(
    graph: Graph,
    coders: MutableMapping[str, beam_runner_api_pb2.Coder],
    ids: Iterable[CoderId],
) -> None:
    """Add coders of a graph to those of a descriptor, with all their components."""
    pending = list(ids)
    while pending:
        id_ = pending.pop()
        if id_ in coders:
            continue
        coder = graph.coders[id_]
        coders[id_].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=coder.urn, payload=coder.payload),
                component_coder_ids=coder.components,
            )
        )
        pending.extend(coder.components)


class PagedIterableCoder(IterableCoder):  # type: ignore[misc]
    """The coder of a group's values, which the SDK reads page by page if there are many."""


class WireCoders:
    """Adds to a descriptor the coders of elements on edges to and from a stage.

    The runner decodes only the outermost KV, the iterable of a group, and the parts and the size
    of a sized restriction. All else is bytes to it, whatever its coder.

    Args:
        graph: The graph, with the coders of the SDKs.
        coders: The coders of the descriptor, to which the new ones are added.
    """

    def __init__(
        self,
        graph: Graph,
        coders: MutableMapping[str, beam_runner_api_pb2.Coder],
    ) -> None:
        self._graph = graph
        self._coders = coders

    def element(self, id_: CoderId) -> CoderId:
        """Return the coder for elements of the coder ``id_``."""
        coder = self._graph.coders[id_]
        if coder.urn != urns.CODER_KV:
            return self._part(id_)
        return self._add(urns.CODER_KV, map(self._part, coder.components))

    def keyed(self, id_: CoderId) -> CoderId:
        """Return the coder for KVs of which the runner decodes only the key."""
        key, value = self._graph.coders[id_].components
        add_coders(self._graph, self._coders, [value])
        return self._add(urns.CODER_KV, (self._part(key), value))

    def whole(self, id_: CoderId) -> CoderId:
        """Return the coder for elements of a TestStream, which are bytes even if they are KVs.

        Whether they begin with a length already does not matter. The Java and Python SDKs do not
        prefix elements of a TestStream that are bytes or strings; the Go SDK does.
        """
        add_coders(self._graph, self._coders, [id_])
        if self._graph.coders[id_].urn == _CUSTOM_OF_GO:
            id_ = self._add(urns.CODER_LENGTH_PREFIX, (id_,))
        return self._add(urns.CODER_LENGTH_PREFIX, (id_,))

    def sized(self, id_: CoderId) -> CoderId:
        """Return the coder for sized restrictions, whose sizes the runner reads.

        The structure stays: KV<KV<element, KV<restriction, state>>, size>.

        Raises:
            InvalidPipelineError: The coder has another structure.
        """
        key, size = self._pair(id_, id_)
        element, restriction_and_state = self._pair(key, id_)
        parts = self._pair(restriction_and_state, id_)
        add_coders(self._graph, self._coders, [size])
        paired = (self._part(element), self._add(urns.CODER_KV, map(self._part, parts)))
        return self._add(urns.CODER_KV, (self._add(urns.CODER_KV, paired), size))

    def _pair(self, id_: CoderId, sized: CoderId) -> tuple[CoderId, CoderId]:
        coder = self._graph.coders[id_]
        if coder.urn != urns.CODER_KV:
            raise InvalidPipelineError(
                "a splittable DoFn reads KV<KV<element, KV<restriction, watermark state>>, size>, "
                f"but a part of its input that should be a KV has the coder {coder.urn}",
                sized,
            )
        key, value = coder.components
        return key, value

    def grouped(self, id_: CoderId, *, in_pages: bool) -> CoderId:
        """Return the coder for groups: ``id_`` is a KV of a key and an iterable.

        Args:
            id_: The SDK's coder of groups.
            in_pages: Whether the SDK can read the values of a large group page by page.

        Raises:
            InvalidPipelineError: The coder has another structure.
        """
        coder = self._graph.coders[id_]
        key, values = coder.components if coder.urn == urns.CODER_KV else (id_, id_)
        if self._graph.coders[values].urn not in _ITERABLES:
            raise InvalidPipelineError(
                "a group is a KV of a key and an iterable, but has the coder "
                f"{coder.urn}, with values of the coder {self._graph.coders[values].urn}",
                id_,
            )
        (value,) = self._graph.coders[values].components
        urn, payload = (
            (urns.CODER_STATE_BACKED_ITERABLE, b"1") if in_pages else (urns.CODER_ITERABLE, b"")
        )
        iterable = self._add(urn, (self._part(value),), payload)
        return self._add(urns.CODER_KV, (self._part(key), iterable))

    def timers(self, id_: CoderId, *, key: CoderId | None, window: CoderId) -> CoderId:
        """Return the coder for timers of a key and a window.

        Args:
            id_: The SDK's coder of timers.
            key: The coder of their keys; None: that in ``id_``.
            window: The coder of their windows.
        """
        coder = self._graph.coders[id_]
        if coder.urn != urns.CODER_TIMER:
            raise InvariantError(f"the timers of a DoFn have the coder {id_}, which is for others")
        parts = (self._part(key or coder.components[0]), self.window(window))
        return self._add(urns.CODER_TIMER, parts)

    def inside(self, id_: CoderId, environment: EnvironmentId | None) -> CoderId:
        """Return the coder for a collection that does not leave the stage.

        Java's SDK takes a coder of windowed values for that of the collection's own windows and
        timestamps, and measures elements by the coder of the values in it
        (``PCollectionConsumerRegistry``). Elements that are windowed values need another one.

        Args:
            id_: The SDK's coder of the elements.
            environment: The environment of the stage.
        """
        add_coders(self._graph, self._coders, [id_])
        is_windowed = self._graph.coders[id_].urn in urns.WINDOWED_VALUE_CODERS
        if environment is None or not (is_windowed and is_of_java(self._graph, environment)):
            return id_
        return self._add(urns.CODER_LENGTH_PREFIX, (id_,))

    def window(self, id_: CoderId) -> CoderId:
        """Return the coder for windows of the coder ``id_``, which shows the runner their end."""
        add_coders(self._graph, self._coders, [id_])
        if self._graph.coders[id_].urn in urns.WINDOW_CODERS:
            return id_
        prefixed = self._add(urns.CODER_LENGTH_PREFIX, (id_,))
        return self._add(urns.CODER_CUSTOM_WINDOW, (prefixed,))

    def values(self, id_: CoderId, environment: EnvironmentId | None) -> CoderId:
        """Return the coder for values of multimaps, which the runner has to count.

        Java's SDK encodes them by the coder that the DoFn has, whatever the descriptor asks for.

        Args:
            id_: The SDK's coder of the values.
            environment: The environment of the DoFn.
        """
        if environment is not None and is_of_java(self._graph, environment):
            add_coders(self._graph, self._coders, [id_])
            return id_
        return self._part(id_)

    def _part(self, id_: CoderId) -> CoderId:
        add_coders(self._graph, self._coders, [id_])
        if self._graph.coders[id_].urn in _PREFIXED:
            return id_
        return self._add(urns.CODER_LENGTH_PREFIX, (id_,))

    def _add(self, urn: str, components: Iterable[CoderId], payload: bytes = b"") -> CoderId:
        components = tuple(components)
        id_ = f"{RUNNERS_CODERS}{urn.split(':')[2]}({','.join(components)})"
        self._coders[id_].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=urn, payload=payload),
                component_coder_ids=components,
            )
        )
        return CoderId(id_)


def coder_seen_by_the_runner(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, id_: str
) -> WindowedValueCoder:
    """Return the runner's coder for windowed values on an edge whose port has the coder ``id_``."""
    element, window = descriptor.coders[id_].component_coder_ids
    windows = window_coder_seen_by_the_runner(descriptor, window)
    return WindowedValueCoder(_coder_seen(descriptor, element), windows)


def timer_coders_seen_by_the_runner(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, id_: str
) -> tuple[Coder, Coder]:
    """Return the runner's coders for key and window of timers of the coder ``id_``."""
    key, window = descriptor.coders[id_].component_coder_ids
    return _coder_seen(descriptor, key), window_coder_seen_by_the_runner(descriptor, window)


def window_namer(coder: Coder) -> Callable[[Any], bytes]:
    """Return a function that encodes windows as SDKs do in requests for state and side inputs.

    There a window is encoded by the SDK's own coder alone.

    Args:
        coder: The coder of windows on an edge, of the runner or of the SDK.
    """
    encode: Callable[[Any], bytes] = coder.encode
    is_prefixed = isinstance(coder, TimestampPrefixingOpaqueWindowCoder) or (
        isinstance(coder, TimestampPrefixingWindowCoder)
        and isinstance(coder._get_component_coders()[0], LengthPrefixCoder)
    )
    if not is_prefixed:
        return encode

    def name(window: Any) -> bytes:
        coded = encode(window)
        _, start = read_varint(coded, _TIMESTAMP_BYTES)
        return coded[start:]

    return name


def window_coder_seen_by_the_runner(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, id_: str
) -> Coder:
    """Return the runner's coder for windows on an edge.

    Nothing but the URN counts: Beam would also build components that the model does not define.

    Raises:
        InvariantError: ``WireCoders.window`` has not added the coder.
    """
    match descriptor.coders[id_].spec.urn:
        case urns.CODER_CUSTOM_WINDOW:
            return TimestampPrefixingOpaqueWindowCoder()
        case urns.CODER_GLOBAL_WINDOW:
            return GlobalWindowCoder()
        case urns.CODER_INTERVAL_WINDOW:
            return IntervalWindowCoder()
        case other:
            raise InvariantError(f"windows have the coder {other} on an edge")


def _coder_seen(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, id_: str) -> Coder:
    coder = descriptor.coders[id_]
    parts = coder.component_coder_ids
    match coder.spec.urn:
        case urns.CODER_KV:
            return TupleCoder([_coder_seen(descriptor, part) for part in parts])
        case urns.CODER_STATE_BACKED_ITERABLE:
            return PagedIterableCoder(_coder_seen(descriptor, parts[0]))
        case urns.CODER_ITERABLE:
            return IterableCoder(_coder_seen(descriptor, parts[0]))
        case urns.CODER_DOUBLE:
            return FloatCoder()
    return BytesCoder()
