"""Windowed values that are decoded one after the other."""

import pytest
from apache_beam.coders import BytesCoder, Coder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import (
    PANE_INFO_UNKNOWN,
    PaneInfo,
    PaneInfoTiming,
    WindowedValue,
    create,
)
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.codec import windowed
from beam_spark_runner.harness.codec.windowed import KnownWindows, windowed_decoder

_PANES = [PANE_INFO_UNKNOWN, PaneInfo(True, False, PaneInfoTiming.EARLY, 0, -1)]


def _decoded(elements: list[WindowedValue], window_coder: Coder) -> list[WindowedValue]:
    encode = WindowedValueCoder(BytesCoder(), window_coder).get_impl().encode
    return list(map(windowed_decoder(BytesCoder(), window_coder), map(encode, elements)))


@given(
    st.lists(
        st.builds(
            create,
            st.binary(max_size=30),
            st.integers(-5, 5).map(lambda seconds: seconds * 1_000_000),
            st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True).map(
                lambda starts: tuple(IntervalWindow(start, start + 60) for start in starts)
            ),
            st.sampled_from(_PANES),
        )
    )
)
def test_elements_are_decoded_as_they_were(elements: list[WindowedValue]) -> None:
    assert _decoded(elements, IntervalWindowCoder()) == elements


@pytest.mark.parametrize("most", [1_000, 1])
def test_elements_share_their_windows(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(windowed, "_MAX_WINDOWS", most)
    starts = [0, 0, 60, 60, 0]
    elements = [
        create(b"a", n * 1000, (IntervalWindow(start, start + 60),), PANE_INFO_UNKNOWN)
        for n, start in enumerate(starts)
    ]
    found = _decoded(elements, IntervalWindowCoder())
    assert found == elements
    first, second, third, fourth, fifth = (each.windows for each in found)
    assert first is second
    assert third is fourth
    assert (fifth is first) == (most > 1)


def test_windows_without_bytes() -> None:
    element = create(b"", 7_000, (GlobalWindow(),), PANE_INFO_UNKNOWN)
    assert _decoded([element] * 2, GlobalWindowCoder()) == [element] * 2


@pytest.mark.parametrize("most", [1_000, 1])
def test_known_windows(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(windowed, "_MAX_WINDOWS", most)
    coder = IntervalWindowCoder()
    known = KnownWindows(coder)
    for start in (0, 60, 0, 120, 60):
        for window in (IntervalWindow(start, start + 60), IntervalWindow(start, start + 60)):
            coded = coder.encode(window)
            for _ in range(2):
                assert known.entry_of(window) == (window, coded, (start + 60) * 1_000_000 - 1)
                assert known.last_us(window) == window.max_timestamp().micros
                assert known.decode(coded) == window
