import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core import routing


def test_murmur3_is_sparks() -> None:
    """Known values: ``SELECT hash(CAST(x AS BIGINT))``."""
    numbers = np.array([0, 1, -1, 2**62, -5], np.int64)
    hashes = [-1670924195, -1712319331, -939490007, -2030303457, 424949597]
    assert routing.murmur3_of_longs(numbers).tolist() == hashes


@given(st.integers(routing.CONTROL_CODE, routing.REPORT_CODE), st.integers(1, 300))
def test_each_partition_has_a_route(code: int, partitions: int) -> None:
    routes = np.array(routing.routes_to_partitions(code, partitions), np.int64)
    assert routing.partitions_of_routes(routes, partitions).tolist() == list(range(partitions))
    assert (routes >> routing.HASH_BITS == code).all()


def test_routes_of_keys_sort_by_code_first() -> None:
    keys = [b"", b"a", b"\xff" * 100]
    codes = [routing.CONTROL_CODE, routing.FIRST_CODE, -1, 0, 1, routing.REPORT_CODE]
    by_code = [sorted(routing.routes_of_keys(keys, 3, code).tolist()) for code in codes]
    flat = [route for routes in by_code for route in routes]
    assert flat == sorted(set(flat))


@pytest.mark.parametrize("count", [1, 2, 4, 200])
def test_keys_are_spread(count: int) -> None:
    keys = [str(n).encode() for n in range(count * 1000)]
    routes = routing.routes_of_keys(keys, len(keys), routing.FIRST_CODE)
    loads = np.bincount(routing.partitions_of_routes(routes, count), minlength=count)
    assert 800 < loads.min() <= loads.max() < 1200
