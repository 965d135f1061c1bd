"""Warnings of side inputs that are not there before their input ends."""

import pytest

from beam_spark_runner.graph import passes
from beam_spark_runner.plan.blocking import blocking_side_inputs
from beam_spark_runner.plan.build import build
from tests.golden.notation import parse


def warnings(text: str) -> list[str]:
    return blocking_side_inputs(
        build(passes.run_passes(parse(text), passes.STREAMING), is_streaming=True)
    )


def test_one_warning_names_what_makes_it_and_all_that_wait() -> None:
    (warning,) = warnings(
        """
        Start: impulse() -> start
        Rates: pardo(start) -> rates @py
        Pairs: pardo(start) -> pairs @py
        Look: pardo(pairs, rates as iterable) -> looked @py
        Count: pardo(pairs, rates as multimap) -> counts @py state=count
        Read: pardo(pairs, rates as iterable) -> lines @py restriction=range
        pairs :: kv<bytes,varint>, unbounded
        rates :: kv<bytes,varint>, unbounded
        """
    )
    assert warning.startswith(
        "Look, Count, Read: elements wait until the side input from Rates ends, because "
    )


@pytest.mark.parametrize(
    "rates", ["bytes", "bytes, unbounded, fixed", "bytes, unbounded, global trigger=always"]
)
def test_what_comes_to_an_end_or_fires_needs_none(rates: str) -> None:
    text = f"""
        Start: impulse() -> start
        Rates: pardo(start) -> rates @py
        Look: pardo(start, rates as iterable) -> looked @py
        start :: bytes, unbounded
        rates :: {rates}
        """
    assert not warnings(text)
    assert warnings(text.replace(rates, "bytes, unbounded"))
