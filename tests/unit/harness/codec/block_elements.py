"""Elements as blocks have them: for tests of those who write and read them."""

from typing import Any

from apache_beam.coders import (
    BytesCoder,
    Coder,
    FloatCoder,
    IterableCoder,
    TupleCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import (
    PANE_INFO_UNKNOWN,
    PaneInfo,
    PaneInfoTiming,
    WindowedValue,
    create,
)
from hypothesis import strategies as st

from beam_spark_runner.harness.codec.columns import ElementReader

BYTES = st.one_of(st.binary(max_size=5), st.binary(min_size=120, max_size=140))
DOUBLES = st.floats(allow_nan=False)
PAIR = TupleCoder([BytesCoder(), BytesCoder()])
SIZED = TupleCoder([TupleCoder([BytesCoder(), PAIR]), FloatCoder()])
SHAPES: list[tuple[Coder, st.SearchStrategy[Any]]] = [
    (BytesCoder(), BYTES),
    (PAIR, st.tuples(BYTES, BYTES)),
    (TupleCoder([BytesCoder(), FloatCoder()]), st.tuples(BYTES, DOUBLES)),
    (SIZED, st.tuples(st.tuples(BYTES, st.tuples(BYTES, BYTES)), DOUBLES)),
]
GROUPED = TupleCoder([BytesCoder(), IterableCoder(BytesCoder())])
PANES = st.sampled_from(
    [
        PANE_INFO_UNKNOWN,
        PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0),
        PaneInfo(False, False, PaneInfoTiming.EARLY, 300, -1),
        PaneInfo(False, True, PaneInfoTiming.LATE, 5, 2),
    ]
)
TIMES = st.integers(-(10**12), 10**12).map(lambda ms: ms * 1000)
WINDOWS: list[tuple[Coder, st.SearchStrategy[Any]]] = [
    (GlobalWindowCoder(), st.just((GlobalWindow(),))),
    (
        IntervalWindowCoder(),
        st.lists(
            st.builds(
                lambda start, size: IntervalWindow(start, start + size),
                st.integers(-1000, 1000),
                st.integers(1, 10_000),
            ),
            min_size=0,  # sliding windows may have gaps between them
            max_size=3,
        ).map(tuple),
    ),
]


def elements_in(block: bytes, reader: ElementReader) -> list[WindowedValue]:
    """Read a block to its end."""
    return [
        origin.with_value(value)
        for values, origins in reader.read(block)
        for value, origin in zip(values, origins, strict=True)
    ]


@st.composite
def elements_of(draw: Any, shapes: list[Any]) -> tuple[WindowedValueCoder, list[WindowedValue]]:
    coder, values = draw(st.sampled_from(shapes))
    window_coder, windows = draw(st.sampled_from(WINDOWS))
    origins = st.builds(lambda us, ws, pane: create(None, us, ws, pane), TIMES, windows, PANES)
    pool = draw(st.lists(origins, min_size=1, max_size=3))
    pairs = draw(st.lists(st.tuples(values, st.sampled_from(pool)), max_size=8))
    elements = [origin.with_value(value) for value, origin in pairs]
    return WindowedValueCoder(coder, window_coder), elements
