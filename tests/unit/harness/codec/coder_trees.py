"""Coders of every kind with values of theirs: for tests of what crosses edges."""

from typing import Any, NamedTuple

from apache_beam.coders import RowCoder, coders
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.typehints import row_type
from apache_beam.utils import windowed_value
from apache_beam.utils.sharded_key import ShardedKey
from apache_beam.utils.timestamp import Timestamp
from hypothesis import strategies as st

from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.graph.model import Coder, Graph


class Coded(NamedTuple):
    """A coder, and values that it encodes."""

    coder: coders.Coder
    values: st.SearchStrategy[Any]


class Point(NamedTuple):
    """A row."""

    x: int
    label: str | None


MILLISECONDS = st.integers(-(10**12), 10**12).map(lambda ms: Timestamp(micros=ms * 1000))
WINDOWS = st.builds(
    lambda start, size: IntervalWindow(start, start + size),
    st.integers(-1000, 1000),
    st.integers(1, 10_000),
)
PRIMITIVES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)),
    max_leaves=4,
)
LEAVES = [
    Coded(coders.BytesCoder(), st.binary(max_size=200)),
    Coded(coders.StrUtf8Coder(), st.text(max_size=50)),
    Coded(coders.VarIntCoder(), st.integers(-(1 << 63), (1 << 63) - 1)),
    Coded(coders.FloatCoder(), st.floats(allow_nan=False)),
    Coded(coders.SinglePrecisionFloatCoder(), st.floats(allow_nan=False, width=32)),
    Coded(coders.BigEndianShortCoder(), st.integers(-(1 << 15), (1 << 15) - 1)),
    Coded(coders.BooleanCoder(), st.booleans()),
    Coded(coders.TimestampCoder(), MILLISECONDS),
    Coded(coders.FastPrimitivesCoder(), PRIMITIVES),
    Coded(coders.PickleCoder(), PRIMITIVES),
    Coded(coders.DecimalCoder(), st.decimals(-1_000_000, 1_000_000, places=2)),
    Coded(coders.GlobalWindowCoder(), st.just(GlobalWindow())),
    Coded(coders.IntervalWindowCoder(), WINDOWS),
    Coded(
        RowCoder.from_type_hint(row_type.RowTypeConstraint.from_user_type(Point), None),
        st.builds(Point, st.integers(-(1 << 63), (1 << 63) - 1), st.none() | st.text(max_size=5)),
    ),
]


def _iterable(one: Coded) -> Coded:
    return Coded(coders.IterableCoder(one.coder), st.lists(one.values, max_size=3))


def _pair(one: Coded, other: Coded) -> Coded:
    return Coded(coders.TupleCoder([one.coder, other.coder]), st.tuples(one.values, other.values))


def _three(one: Coded) -> Coded:
    return Coded(coders.TupleCoder([one.coder] * 3), st.tuples(*[one.values] * 3))


def _map(one: Coded) -> Coded:
    values = st.dictionaries(st.text(max_size=3), one.values, max_size=3)
    return Coded(coders.MapCoder(coders.StrUtf8Coder(), one.coder), values)


def _nullable(one: Coded) -> Coded:
    return Coded(coders.NullableCoder(one.coder), st.none() | one.values)


def _prefixed(one: Coded) -> Coded:
    return Coded(coders.LengthPrefixCoder(one.coder), one.values)


def _sharded(one: Coded) -> Coded:
    values = st.builds(ShardedKey, one.values, st.binary(max_size=5))
    return Coded(coders.ShardedKeyCoder(one.coder), values)


def _windowed(one: Coded) -> Coded:
    values = st.builds(
        windowed_value.WindowedValue,
        one.values,
        MILLISECONDS,
        st.lists(WINDOWS, min_size=1, max_size=2).map(tuple),
    )
    return Coded(coders.WindowedValueCoder(one.coder, coders.IntervalWindowCoder()), values)


_MADE_OF_ONE = [_iterable, _three, _map, _nullable, _prefixed, _sharded, _windowed]
SMALL = [
    *LEAVES,
    *(made(leaf) for made in _MADE_OF_ONE for leaf in LEAVES[:4]),
    *(_pair(leaf, LEAVES[2]) for leaf in LEAVES),
]
"""One of each kind, at least."""


@st.composite
def _trees(draw: Any, depth: int = 2) -> Coded:
    kind = draw(st.integers(0, len(_MADE_OF_ONE) + 1))
    if not depth or not kind:
        leaf: Coded = draw(st.sampled_from(LEAVES))
        return leaf
    inner: Coded = draw(_trees(depth - 1))
    if kind > len(_MADE_OF_ONE):
        return _pair(inner, draw(_trees(depth - 1)))
    made: Coded = _MADE_OF_ONE[kind - 1](inner)
    return made


CODED = st.one_of(st.sampled_from(SMALL), _trees())
"""Trees of coders."""


def graph_of(coder: coders.Coder) -> tuple[Graph, CoderId]:
    """Return a graph that has the coder, as the SDK would send it."""
    context = PipelineContext()
    id_ = CoderId(context.coders.get_id(coder))
    components = context.to_runner_api().coders
    return (
        Graph(
            transforms={},
            pcollections={},
            coders={
                CoderId(each): Coder(
                    urn=proto.spec.urn,
                    payload=proto.spec.payload,
                    components=tuple(map(CoderId, proto.component_coder_ids)),
                )
                for each, proto in components.items()
            },
            windowings={},
        ),
        id_,
    )
