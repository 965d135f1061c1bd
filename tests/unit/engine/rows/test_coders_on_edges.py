"""Any coder over any edge: what comes out is what went in, where and whenever it was."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from apache_beam.coders import coders
from apache_beam.coders.coder_impl import create_InputStream, create_OutputStream
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.userstate import Timer
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue, create
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from beam_spark_runner.core import urns
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.harness.beam.plugin.block_edges import _decoder, _encoder
from beam_spark_runner.harness.beam.side_input_cache import DecodedCache
from beam_spark_runner.harness.codec.blocks import BlockReader, BlockWriter, TimerCodec
from beam_spark_runner.harness.codec.columns import reader_for, writer_for
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.wire import (
    WireCoders,
    add_coders,
    coder_seen_by_the_runner,
    timer_coders_seen_by_the_runner,
)
from beam_spark_runner.state.backend import Bag, Cell, MapValues
from beam_spark_runner.state.memory import MemoryState
from tests.examples import examples
from tests.unit.engine.rows.written_rows import (
    KEY_ENDS,
    as_spark_would,
    edge_of,
    groups_of,
    read,
    written,
)
from tests.unit.harness.codec.block_elements import PANES, TIMES, WINDOWS, elements_in
from tests.unit.harness.codec.coder_trees import CODED, MILLISECONDS, SMALL, Coded, graph_of

MANY = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SEVERAL = [Delivery.REDISTRIBUTE, Delivery.BY_KEY]


class Wire:
    """The edge of a stage in an SDK harness: what the harness does, and what the runner does.

    Args:
        coder: of the elements, as the user's SDK has it.
        window_coder: theirs.
        is_grouped: whether the runner makes them.
        is_ours: whether the harness has this package.
    """

    def __init__(
        self, coder: Any, window_coder: Any, *, is_grouped: bool = False, is_ours: bool
    ) -> None:
        graph, id_ = graph_of(coders.WindowedValueCoder(coder, window_coder))
        element, window = graph.coders[id_].components
        descriptor = beam_fn_api_pb2.ProcessBundleDescriptor()
        wire = WireCoders(graph, descriptor.coders)
        element = wire.grouped(element, in_pages=True) if is_grouped else wire.element(element)
        add_coders(graph, descriptor.coders, [window])
        descriptor.coders["edge"].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn="beam:coder:windowed_value:v1"),
                component_coder_ids=[element, window],
            )
        )
        self.of_sdk = PipelineContext(descriptor).coders.get_by_id("edge")
        self.seen = coder_seen_by_the_runner(descriptor, "edge")
        self._is_ours = is_ours

    def to_runner(self, elements: list[WindowedValue]) -> list[WindowedValue]:
        if not self._is_ours:
            return elements_in(_as_beam_writes(self.of_sdk, elements), BlockReader(self.seen))
        encode = _encoder(self.of_sdk.wrapped_value_coder) or _itself
        out: list[bytes] = []
        values = [encode(element.value) for element in elements]
        writer_for(self.seen).write(values, elements, out)
        return elements_in(b"".join(out), reader_for(self.seen))

    def to_sdk(self, elements: list[WindowedValue]) -> list[WindowedValue]:
        out: list[bytes] = []
        writer = writer_for(self.seen) if self._is_ours else BlockWriter(self.seen)
        writer.write([element.value for element in elements], elements, out)
        block = b"".join(out)
        if not self._is_ours:
            return _as_beam_reads(self.of_sdk, block)
        decode = _decoder(self.of_sdk.wrapped_value_coder) or _itself
        read_ = elements_in(block, reader_for(self.seen))
        return [element.with_value(decode(element.value)) for element in read_]


def _itself(value: Any) -> Any:
    return value


def _as_beam_writes(coder: Any, elements: Iterable[WindowedValue]) -> bytes:
    stream = create_OutputStream()
    for element in elements:
        coder.get_impl().encode_to_stream(element, stream, True)
    return bytes(stream.get())


def _as_beam_reads(coder: Any, block: bytes) -> list[WindowedValue]:
    stream, found = create_InputStream(block), []
    while stream.size():
        found.append(coder.get_impl().decode_from_stream(stream, True))
    return found


def over_rows(
    delivery: Delivery, coder: Any, elements: list[WindowedValue], chance: random.Random
) -> list[WindowedValue]:
    """From one task to another, in any order."""
    edge = edge_of(delivery, is_global=_is_global(coder))
    found: list[WindowedValue] = []
    batches = as_spark_would(edge, written(edge, coder, elements), chance)
    read(edge, coder, batches, found.append)
    return [element for element in found if element is not KEY_ENDS]


def _is_global(coder: Any) -> bool:
    return isinstance(coder.window_coder, coders.GlobalWindowCoder)


def counted(coder: Any, elements: Iterable[WindowedValue]) -> Counter[tuple[Any, ...]]:
    """Elements in any order; by their bytes, since not all can be hashed."""
    encode = coder.get_impl().encode
    return Counter(
        (encode(each.value), each.timestamp, frozenset(each.windows), each.pane_info)
        for each in elements
    )


@st.composite
def streams(draw: Any, coded: st.SearchStrategy[Coded]) -> tuple[Any, Any, list[WindowedValue]]:
    """A coder, one of windows, and elements."""
    coder, values = draw(coded)
    window_coder, windows = draw(st.sampled_from(WINDOWS))
    bare = create(None, MIN_TIMESTAMP.micros, (GlobalWindow(),), PANE_INFO_UNKNOWN)
    origins = st.builds(lambda us, ws, pane: create(None, us, ws, pane), TIMES, windows, PANES)
    if isinstance(window_coder, coders.GlobalWindowCoder):
        origins = st.one_of(origins, st.just(bare))
    pool = draw(st.lists(origins, min_size=1, max_size=3))
    elements = draw(st.lists(st.tuples(values, st.sampled_from(pool)), max_size=6))
    return coder, window_coder, [origin.with_value(value) for value, origin in elements]


PAIRS = st.tuples(CODED, CODED).map(
    lambda parts: Coded(
        coders.TupleCoder([part.coder for part in parts]),
        st.tuples(*(part.values for part in parts)),
    )
)
WHERE = pytest.mark.parametrize("is_ours", [None, True, False], ids=["here", "ours", "Beam's"])


@WHERE
@pytest.mark.parametrize("delivery", SEVERAL, ids=lambda each: each.name)
@given(data=st.data(), chance=st.randoms(use_true_random=False))
@MANY
def test_elements_of_any_coder_cross_each_edge(
    data: st.DataObject, chance: random.Random, delivery: Delivery, is_ours: bool | None
) -> None:
    kinds = PAIRS if delivery is Delivery.BY_KEY else st.one_of(CODED, PAIRS)
    coder, window_coder, elements = data.draw(streams(kinds))
    if is_ours is None:
        windowed = coders.WindowedValueCoder(coder, window_coder)
        found = over_rows(delivery, windowed, elements, chance)
    else:
        wire = Wire(coder, window_coder, is_ours=is_ours)
        crossed = over_rows(delivery, wire.seen, wire.to_runner(elements), chance)
        found = wire.to_sdk(crossed)
    assert counted(coder, found) == counted(coder, elements)


@WHERE
@given(pair=PAIRS, data=st.data(), chance=st.randoms(use_true_random=False))
@MANY
def test_groups_of_any_pair_cross_a_grouping(
    pair: Coded, data: st.DataObject, chance: random.Random, is_ours: bool | None
) -> None:
    check_groups(pair, data, chance, is_ours)


@WHERE
@pytest.mark.parametrize("kind", SMALL, ids=lambda kind: repr(kind.coder))
@given(data=st.data(), chance=st.randoms(use_true_random=False))
@settings(MANY, max_examples=3)
def test_groups_of_each_kind_of_coder_cross_a_grouping(
    data: st.DataObject, chance: random.Random, kind: Coded, is_ours: bool | None
) -> None:
    """As the keys, and as the values."""
    values = st.tuples(kind.values, kind.values)
    pair = Coded(coders.TupleCoder([kind.coder, kind.coder]), values)
    check_groups(pair, data, chance, is_ours)


def check_groups(
    pair: Coded, data: st.DataObject, chance: random.Random, is_ours: bool | None
) -> None:
    key, value = pair.coder.coders()
    window_coder = coders.GlobalWindowCoder()
    pool = data.draw(st.lists(pair.values, min_size=1, max_size=6))
    keys = data.draw(st.lists(st.sampled_from([each for each, _ in pool]), min_size=1, max_size=8))
    pairs = [(one, data.draw(st.sampled_from(pool))[1]) for one in keys]
    elements = [create(each, 0, (GlobalWindow(),), PANE_INFO_UNKNOWN) for each in pairs]
    group_coder = coders.TupleCoder([key, coders.IterableCoder(value)])
    edge = edge_of(Delivery.GROUP_BY_KEY)
    written_as: Any = coders.WindowedValueCoder(pair.coder, window_coder)
    read_as: Any = coders.WindowedValueCoder(group_coder, window_coder)
    to_sdk: Callable[[list[WindowedValue]], list[WindowedValue]] = list
    if is_ours is not None:
        writes = Wire(pair.coder, window_coder, is_ours=is_ours)
        reads = Wire(group_coder, window_coder, is_grouped=True, is_ours=is_ours)
        written_as, read_as, to_sdk = writes.seen, reads.seen, reads.to_sdk
        elements = writes.to_runner(elements)
    batches = as_spark_would(edge, written(edge, written_as, elements), chance)
    groups = groups_of(edge, read_as, batches)
    found = to_sdk([origin.with_value((each, values)) for each, values, origin in groups])
    encode_key, encode_value = key.get_impl().encode, value.get_impl().encode
    seen: dict[bytes, list[bytes]] = {}
    for element in found:
        one, values = element.value
        assert encode_key(one) not in seen
        seen[encode_key(one)] = sorted(map(encode_value, values))
    expected: dict[bytes, list[bytes]] = {}
    for one, each in pairs:
        expected.setdefault(encode_key(one), []).append(encode_value(each))
    assert seen == {one: sorted(values) for one, values in expected.items()}


class _Lookup:
    """One side input, in the rows of its values."""

    id = "job/side"

    def __init__(self, found: list[tuple[bytes, int]]) -> None:
        self._found = found

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        return iter(self._found)


@WHERE
@given(data=st.data())
@MANY
def test_side_inputs_of_any_coder_can_be_looked_up(
    data: st.DataObject, is_ours: bool | None
) -> None:
    coder, values = data.draw(CODED)
    some = data.draw(st.lists(values, max_size=8))
    elements = [create(each, 0, (GlobalWindow(),), PANE_INFO_UNKNOWN) for each in some]
    written_as: Any = coders.WindowedValueCoder(coder, coders.GlobalWindowCoder())
    read_as = coder
    if is_ours is not None:
        wire = Wire(coder, coders.GlobalWindowCoder(), is_ours=is_ours)
        written_as, read_as = wire.seen, wire.of_sdk.wrapped_value_coder
        elements = wire.to_runner(elements)
    edge = edge_of(Delivery.SIDE_INPUT, access_pattern=urns.SIDE_INPUT_ITERABLE)
    limit = 1 << 20
    blocks = [schema.block_of(each) for each in written(edge, written_as, elements, limit=limit)]
    found = [
        (coded, count)
        for block in blocks
        for coded, count in zip(block.values, block.orders.tolist(), strict=True)
    ]
    cache = DecodedCache()
    cache.limit(1 << 20)
    for _ in ("decoded", "kept"):
        seen = list(cache.values(_Lookup(found), b"", None, read_as.get_impl()))
        assert seen == some


@given(data=st.data())
@MANY
def test_timers_of_any_key_are_decoded_as_the_sdk_has_set_them(data: st.DataObject) -> None:
    coder, values = data.draw(CODED)
    window_coder, windows = data.draw(st.sampled_from(WINDOWS))
    timers = coders._TimerCoder(coder, window_coder)
    graph, id_ = graph_of(timers)
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor()
    wire = WireCoders(graph, descriptor.coders)
    id_ = wire.timers(id_, key=None, window=graph.coders[id_].components[1])
    of_sdk = PipelineContext(descriptor).coders.get_by_id(id_).get_impl()
    key, window = timer_coders_seen_by_the_runner(descriptor, id_)
    codec = TimerCodec(key, window, coders._TimerCoder(key, window))
    set_timers = st.builds(
        Timer,
        user_key=values,
        dynamic_timer_tag=st.text(max_size=3),
        windows=windows.filter(bool),
        clear_bit=st.just(False),
        fire_timestamp=MILLISECONDS,
        hold_timestamp=MILLISECONDS,
        paneinfo=PANES,
    )
    some = data.draw(st.lists(set_timers, max_size=4))
    seen = list(codec.read(b"".join(of_sdk.encode_nested(each) for each in some)))
    stream, found = create_InputStream(b"".join(map(codec.write, seen))), []
    while stream.size():
        found.append(of_sdk.decode_from_stream(stream, True))
    assert found == some


@given(data=st.data(), page_bytes=st.integers(1, 40), limit_bytes=st.integers(0, 400))
@MANY
def test_states_of_any_coder_are_read_as_they_were_written(
    data: st.DataObject, page_bytes: int, limit_bytes: int
) -> None:
    """As the SDK writes and reads them: page by page, in memory or not.

    The Fn API writes values one after another, without their number: those that take no byte (of
    Beam's coders, global windows alone) are lost between any SDK and any runner.
    """
    coder, values = data.draw(CODED)
    impl = coder.get_impl()
    some = data.draw(st.lists(st.lists(values, max_size=3), max_size=4))
    assume(all(impl.encode_nested(each) for together in some for each in together))
    state = MemoryState(
        lambda _, coded: sum(1 for _ in impl.decode_all(coded)),
        page_bytes=page_bytes,
        limit_bytes=limit_bytes,
    )
    bag = Bag(Cell("step", "bag", b"", b"key"))
    multimap = MapValues(Cell("step", "map", b"", b"key"), b"map key")
    for address in (bag, multimap):
        for together in some:
            state.append(address, b"".join(map(impl.encode_nested, together)))
        found, token = [], b""
        while True:
            page = state.get(address, token)
            found += impl.decode_all(page.data)
            token = page.token
            if not token:
                break
        assert found == [each for together in some for each in together]
