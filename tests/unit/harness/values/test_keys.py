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

from beam_spark_runner.harness.values.keys import Places
from tests.unit.harness.beam.test_accumulators import EARLIEST, Plus, accumulators, origins

ENCODE = FastPrimitivesCoder().get_impl().encode
NAN = float("nan")
CONFUSED = [True, 1, 1.0, False, 0, 0.0, -0.0, NAN, None]
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
