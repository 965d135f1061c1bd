"""Coders of rows that the runner does not understand.

What an SDK harness reads and writes may have coders that exist only there. So it
puts a length in front of each key, value or element, and the runner takes what
follows for bytes. The rows are the same as those of the embedded harness: a bare
value in a row is the outer encoding of an element, and a length with the bytes
after it is the nested encoding of bytes.

Of windows, the runner has to know when they end. In front of those whose coder may exist only in
an SDK, that SDK puts the last moment of the window, and a length.

Source: Beam ``LengthPrefixUnknownCoders``, ``WireCoders``; proto ``StandardCoders.CUSTOM_WINDOW``.
"""

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from apache_beam.coders import BytesCoder, Coder, FloatCoder, IterableCoder, TupleCoder
from apache_beam.coders.coders import (
    LengthPrefixCoder,
    TimestampPrefixingOpaqueWindowCoder,
    TimestampPrefixingWindowCoder,
    WindowedValueCoder,
)
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError, InvariantError
from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.core.varint import read_varint
from beam_spark_runner.graph.model import Graph

_PREFIXED = frozenset({urns.CODER_BYTES, urns.CODER_STRING, urns.CODER_LENGTH_PREFIX})
"""Their nested encoding begins with a length as it is."""
_TIMESTAMP_BYTES = 8
_CUSTOM_OF_GO = "beam:go:coder:custom:v1"
"""Writes a length in front by itself, which takes the place of that of a length-prefix coder."""
_ITERABLES = frozenset({urns.CODER_ITERABLE, urns.CODER_STATE_BACKED_ITERABLE})


def add_coders(
    graph: Graph,
    coders: MutableMapping[str, beam_runner_api_pb2.Coder],
    wanted: Iterable[CoderId],
) -> None:
    """Add coders of a graph to those of a descriptor, with all that they refer to."""
    pending = list(wanted)
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
    """Of values of a group which the SDK reads page by page if there are many."""


class WireCoders:
    """Adds to a descriptor the coders in which elements cross to and from a stage.

    Only the outermost KV, the iterable of a group, and the parts and the size of a sized
    restriction are for the runner to see. All else is bytes to it, whatever its coder.

    Args:
        graph: has the coders that the SDK gave its collections.
        coders: of the descriptor; gets what is made here.
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
        """Return the coder for pairs of which only the key is for the runner to see."""
        key, value = self._graph.coders[id_].components
        add_coders(self._graph, self._coders, [value])
        return self._add(urns.CODER_KV, (self._part(key), value))

    def whole(self, id_: CoderId) -> CoderId:
        """Return the coder for elements that somebody else has encoded: bytes, whatever they are.

        So it does not matter whether a length is in front already. Java's and Python's SDKs write
        none in front of the elements of a TestStream that are bytes or texts; Go's does.
        """
        add_coders(self._graph, self._coders, [id_])
        if self._graph.coders[id_].urn == _CUSTOM_OF_GO:
            id_ = self._add(urns.CODER_LENGTH_PREFIX, (id_,))
        return self._add(urns.CODER_LENGTH_PREFIX, (id_,))

    def sized(self, id_: CoderId) -> CoderId:
        """Return the coder for sized restrictions, by whose sizes the runner spreads them.

        Their shape stays: KV<KV<element, KV<restriction, state>>, size>.

        Raises:
            InvalidPipelineError: they have another shape.
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
            id_: a coder of groups.
            in_pages: whether the SDK can read the values of a large group page by page.
        """
        coder = self._graph.coders[id_]
        key, values = coder.components
        if self._graph.coders[values].urn not in _ITERABLES:
            raise InvariantError(f"a group's values have the coder {values}, which is no iterable")
        (value,) = self._graph.coders[values].components
        urn, payload = (
            (urns.CODER_STATE_BACKED_ITERABLE, b"1") if in_pages else (urns.CODER_ITERABLE, b"")
        )
        iterable = self._add(urn, (self._part(value),), payload)
        return self._add(urns.CODER_KV, (self._part(key), iterable))

    def timers(self, id_: CoderId, *, key: CoderId | None, window: CoderId) -> CoderId:
        """Return the coder for timers of a key and a window.

        Args:
            id_: a coder of timers.
            key: coder of their keys; None: that in ``id_``.
            window: coder of their windows.
        """
        coder = self._graph.coders[id_]
        if coder.urn != urns.CODER_TIMER:
            raise InvariantError(f"the timers of a DoFn have the coder {id_}, which is for others")
        parts = (self._part(key or coder.components[0]), self.window(window))
        return self._add(urns.CODER_TIMER, parts)

    def window(self, id_: CoderId) -> CoderId:
        """Return the coder for windows of the coder ``id_``: the runner sees when they end."""
        add_coders(self._graph, self._coders, [id_])
        if self._graph.coders[id_].urn in urns.WINDOW_CODERS:
            return id_
        prefixed = self._add(urns.CODER_LENGTH_PREFIX, (id_,))
        return self._add(urns.CODER_CUSTOM_WINDOW, (prefixed,))

    def values(self, id_: CoderId) -> CoderId:
        """Return the coder for values whose number the runner has to know: ``id_`` is theirs."""
        return self._part(id_)

    def _part(self, id_: CoderId) -> CoderId:
        add_coders(self._graph, self._coders, [id_])
        if self._graph.coders[id_].urn in _PREFIXED:
            return id_
        return self._add(urns.CODER_LENGTH_PREFIX, (id_,))

    def _add(self, urn: str, components: Iterable[CoderId], payload: bytes = b"") -> CoderId:
        components = tuple(components)
        id_ = f"wire:{urn.split(':')[2]}({','.join(components)})"
        if id_ in self._graph.coders:
            raise InvariantError(f"the pipeline has a coder {id_} of its own")
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
    """Return the coder for what crosses an edge whose port has the coder ``id_``."""
    element, window = descriptor.coders[id_].component_coder_ids
    windows = window_coder_seen_by_the_runner(descriptor, window)
    return WindowedValueCoder(_seen(descriptor, element), windows)


def timer_coders_seen_by_the_runner(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, id_: str
) -> tuple[Coder, Coder]:
    """Return the coders for key and window of timers, whose own coder is ``id_``."""
    key, window = descriptor.coders[id_].component_coder_ids
    return _seen(descriptor, key), window_coder_seen_by_the_runner(descriptor, window)


def value_coder_seen_by_the_runner(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, id_: str
) -> Coder:
    """Return the coder for values that the runner counts."""
    return _seen(descriptor, id_)


def window_namer(coder: Coder) -> Callable[[Any], bytes]:
    """Return what encodes a window as its SDK names it in requests for state and side inputs.

    There it is encoded by the SDK's own coder alone.

    Args:
        coder: of windows, on an edge: as the runner or the SDK sees them.
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
    """Return the coder for windows of an edge."""
    if descriptor.coders[id_].spec.urn == urns.CODER_CUSTOM_WINDOW:
        return TimestampPrefixingOpaqueWindowCoder()
    return PipelineContext(descriptor).coders.get_by_id(id_)


def _seen(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, id_: str) -> Coder:
    coder = descriptor.coders[id_]
    parts = coder.component_coder_ids
    match coder.spec.urn:
        case urns.CODER_KV:
            return TupleCoder([_seen(descriptor, part) for part in parts])
        case urns.CODER_STATE_BACKED_ITERABLE:
            return PagedIterableCoder(_seen(descriptor, parts[0]))
        case urns.CODER_ITERABLE:
            return IterableCoder(_seen(descriptor, parts[0]))
        case urns.CODER_DOUBLE:
            return FloatCoder()
    return BytesCoder()
