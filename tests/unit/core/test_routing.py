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


@pytest.mark.parametrize("code", [routing.FIRST_CODE, -1, 0, 5])
@pytest.mark.parametrize("partitions", [1, 2, 7, 40, 2_000])
def test_places_are_spread_over_any_number_of_partitions(code: int, partitions: int) -> None:
    places = np.array([0, 1, 5, 39, 40, 41, 2**20, routing.PLACES - 1], np.int64)
    routes = routing.routes_to_places(places, code)
    assert routing.partitions_of_routes(routes, partitions).tolist() == (
        (places % partitions).tolist()
    )
    assert set((routes >> routing.HASH_BITS).tolist()) == {code}


@given(st.lists(st.integers(0, routing.PLACES - 1)), st.integers(-127, 126))
def test_places_are_the_hashes_of_their_routes(places: list[int], code: int) -> None:
    routes = routing.routes_to_places(np.array(places, np.int64), code)
    assert routing.murmur3_of_longs(routes).tolist() == places


@pytest.mark.parametrize("partitions", [1, 3, 4, 200])
def test_tasks_begin_at_their_partition_and_far_from_each_other(partitions: int) -> None:
    firsts = [routing.first_place(task, partitions) for task in range(1_000)]
    assert all(0 <= first < routing.PLACES // 2 for first in firsts)
    assert [first % partitions for first in firsts] == [n % partitions for n in range(1_000)]
    assert len({first // 10_000 for first in firsts}) > 900


@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=50),
    st.sampled_from([routing.FIRST_CODE, -1, 0, 5, 126]),
    st.integers(1, 3_000),
    st.data(),
)
def test_keys_come_to_the_partition_of_their_key_group(
    keys: list[bytes], code: int, groups: int, data: st.DataObject
) -> None:
    partitions = data.draw(st.integers(1, groups))
    routes = routing.routes_in_key_groups(keys, len(keys), code, groups, partitions)
    hashes = [routing.route_of_key(key, 0) & routing.HASH_MASK for key in keys]
    expected = [(hashed >> 24) * groups >> 32 for hashed in hashes]
    found = routing.key_groups_of(np.array(hashes, np.uint64), groups)
    assert found.tolist() == expected
    assert routing.partitions_of_routes(routes, partitions).tolist() == [
        group * partitions // groups for group in expected
    ]
    assert set((routes >> routing.HASH_BITS).tolist()) == {code}
    # Routes and hashes are in one order, as far as their high 24 bits go.
    assert ((routes >> 32) & 0xFFFFFF).tolist() == [hashed >> 32 for hashed in hashes]


@pytest.mark.parametrize("partitions", [1, 2, 7, 64, 128])
def test_each_partition_has_a_range_of_key_groups(partitions: int) -> None:
    groups = np.arange(128, dtype=np.uint64)
    owners = routing.partitions_of_groups(groups, 128, partitions).tolist()
    assert owners == sorted(owners)
    loads = np.bincount(owners, minlength=partitions)
    assert loads.min() >= 128 // partitions
    assert loads.max() <= -(-128 // partitions)


@pytest.mark.parametrize("partitions", [1, 4, 128])
def test_different_keys_hardly_ever_have_one_route(partitions: int) -> None:
    keys = [b"%d" % number for number in range(200_000)]
    routes = routing.routes_in_key_groups(keys, len(keys), 3, 128, partitions)
    assert len(np.unique(routes)) == len(keys)
