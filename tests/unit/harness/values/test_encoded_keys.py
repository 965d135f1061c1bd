"""Keys in dictionaries, which are the same if their encodings are."""

from typing import Any

import pytest
from apache_beam.coders import (
    Coder,
    FastPrimitivesCoder,
    FloatCoder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
)

from beam_spark_runner.harness.values.encoded_keys import Places
from tests.unit.harness.beam.accumulating import EARLIEST, Plus, accumulators, origins

ENCODE = FastPrimitivesCoder().get_impl().encode
NAN = float("nan")
CONFUSED = [True, 1, 1.0, 1 + 0j, 1 + 1j, False, 0, 0.0, -0.0, NAN, None]
"""Some of these keys are equal in Python, and none of them are in Beam."""
WRAPPED = pytest.mark.parametrize(
    "wrap",
    [lambda key: key, lambda key: ("a", key), lambda key: (0, (key,))],
    ids=["alone", "in a pair", "in pairs"],
)


@WRAPPED
def test_what_python_confuses_is_apart(wrap: Any) -> None:
    places = Places(FastPrimitivesCoder())
    keys = [*map(wrap, CONFUSED)]
    assert len({places.place(key) for key in keys}) == len(keys)
    again = [places.key(places.place(key)) for key in keys]
    assert [*map(ENCODE, again)] == [*map(ENCODE, keys)]


@pytest.mark.parametrize("key", ["a", b"a", 7, None, ("a", 1), (("a",), (b"", (1 << 70, None)))])
def test_most_keys_stand_for_themselves(key: Any) -> None:
    assert Places(FastPrimitivesCoder()).place(key) is key


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (["a", 1], str),
        ([b"a"], bytes),
        ([7, True, 1.0], int),
        ([("a", 1), ("b", 2)], tuple),
        ([("a", 1), ("b", True)], None),
        ([("a", 1), (1, "a")], None),
        ([("a", 1), 2], None),
        ([("a", 1.0)], None),
        ([("a", 1, 1), ("b", 2, 2)], tuple),
        ([("a", 1, 1), ("b", 2, True)], None),
        ([("a", 1, 1), ("b", 2)], None),
        ([("a", 1), ("b", 2, 2)], None),
        ([("a", (1, 2))], None),
        ([()], tuple),
        ([True], None),
        ([1.5], None),
        ([{}], None),
    ],
)
def test_the_kind_of_a_chunk(keys: list[Any], kind: type | None) -> None:
    places = Places(FastPrimitivesCoder())
    assert places.kind([(key, None) for key in keys]) is kind
    for key in keys:
        if type(key) is kind:
            assert places.place(key) is key


@pytest.mark.parametrize("values", [[], [7], [()], [("a", 1), 7], [(("a", 1), 1), 7]])
def test_values_that_are_no_kvs_raise_no_error(values: list[Any]) -> None:
    assert Places(FastPrimitivesCoder()).kind(values) in (None, str)


@pytest.mark.parametrize("key", [0.5, -1.0, 1e300, float("inf"), -float("inf"), 5e-324, True])
def test_places_of_other_scalars_are_not_encoded(key: Any) -> None:
    places = Places(FastPrimitivesCoder())
    places._encode = None
    place = places.place(key)
    assert place != key
    assert ENCODE(places.key(place)) == ENCODE(key)


@pytest.mark.parametrize(
    ("coder", "are_keys"),
    [
        (StrUtf8Coder(), True),
        (VarIntCoder(), True),
        (TupleCoder([StrUtf8Coder(), TupleCoder([VarIntCoder()])]), True),
        (TupleCoder([StrUtf8Coder(), FloatCoder()]), False),
        (FastPrimitivesCoder(), False),
    ],
)
def test_coders_of_one_type(coder: Coder, are_keys: bool) -> None:
    assert Places(coder).are_keys is are_keys


@pytest.mark.parametrize(
    "options",
    [{"is_global": True}, {}, {"combine_timestamps": EARLIEST}],
    ids=["global", "windowed", "timed"],
)
@WRAPPED
def test_accumulators_of_keys_that_python_confuses(wrap: Any, options: Any) -> None:
    keys = [*map(wrap, CONFUSED)] * 3
    held, emitted = accumulators(Plus(), lambda _: 1, **options)
    held.add([(key, 1) for key in keys], origins(len(keys)))
    held.drain()
    found = [(ENCODE(key), count) for (key, count), _ in emitted]
    assert found == [(ENCODE(wrap(key)), 3) for key in CONFUSED]
