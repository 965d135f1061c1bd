"""The order of keys is that of Python's stable sort, whatever the keys are."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.transforms.full_window.ordering import Keys

KEYS_OF_ONE_KIND = st.sampled_from(
    [
        st.binary(max_size=12),
        st.sampled_from([b"", b"\0", b"\0\0", b"12345678", b"12345678\0", b"\xff" * 9]),
        st.integers(),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.booleans(),
        st.floats(allow_nan=False),
        st.text(max_size=3),
        st.text(st.characters(codec=None), max_size=3),
        st.tuples(st.integers(0, 3), st.text(max_size=1)),
        st.tuples(st.binary(max_size=1), st.integers(0, 3)),
    ]
)


def ordered(keys: list[Any], *, descends: bool, at_once: int = 128) -> list[int]:
    column = Keys()
    for start in range(0, len(keys), at_once):
        column.extend(keys[start : start + at_once])
    places: list[int] = column.places(descends=descends).tolist()
    return places


def many_of(keys: list[Any], *, seed: int) -> list[Any]:
    """So many of them, some equal, that Arrow or numpy sorts them."""
    return random.Random(seed).choices(keys, k=300)


@given(KEYS_OF_ONE_KIND.flatmap(lambda kind: st.lists(kind, min_size=1)), st.booleans())
def test_it_is_the_order_of_python_s_stable_sort(some: list[Any], descends: bool) -> None:
    keys = many_of(some, seed=len(some))
    expected = sorted(range(len(keys)), key=keys.__getitem__, reverse=descends)
    assert ordered(keys, descends=descends) == expected


@pytest.mark.parametrize("descends", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda i: i.to_bytes(8, "big"), id="other first bytes"),
        pytest.param(lambda i: b"the same prefix %d" % i, id="no other first bytes"),
        pytest.param(lambda i: b"%08d%d" % (i // 2, -i), id="pairs with the same first bytes"),
        pytest.param(lambda i: b"%08d%d" % (i - i % 50, -i), id="few groups with the same"),
        pytest.param(lambda i: (i // 7, -i), id="tuples"),
        pytest.param(lambda i: (i, str(i) if i % 7 else None), id="tuples of two kinds"),
        pytest.param(lambda i: ((i // 3, i),), id="tuples in tuples"),
        pytest.param(lambda i: i << 60, id="more than 64 bits"),
        pytest.param(lambda i: i if i % 2 else i / 7, id="whole numbers and others"),
        pytest.param(lambda i: 0.0 if i % 2 else -0.0, id="both zeros are equal"),
        pytest.param(lambda i: (math.inf, -math.inf, 5e-324, -5e-324)[i % 4], id="extremes"),
        pytest.param(lambda i: "äöü€𝄞"[i % 5] * 3 + str(i), id="text"),
        pytest.param(lambda i: () if i == 7 else (i % 5,), id="an empty tuple"),
    ],
)
def test_keys_with_and_without_a_prefix(make: Callable[[int], Any], descends: bool) -> None:
    keys = [make(i) for i in range(2_000)]
    random.Random(3).shuffle(keys)
    expected = sorted(range(len(keys)), key=keys.__getitem__, reverse=descends)
    assert ordered(keys, descends=descends) == expected


def test_keys_without_an_order() -> None:
    with pytest.raises(TypeError, match="not supported between instances"):
        ordered([(1, "a"), (1, 2)] * 300, descends=False)


def test_nothing_to_sort() -> None:
    assert ordered([], descends=False) == []
