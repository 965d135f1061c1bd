"""Packs of small records, and records that are outlying."""

from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.state.remote.packs import (
    LARGEST_PACK,
    LARGEST_RECORD,
    Pack,
    changed,
    decode,
    encode,
)

NAMES = st.binary(min_size=1, max_size=3).map(lambda name: bytes(b"ab"[each % 2] for each in name))
VALUES = st.none() | st.binary(max_size=4) | st.sampled_from([b"x" * 250, b"y" * 254, b"z" * 300])
CHANGES = st.dictionaries(NAMES, VALUES, max_size=14)


@given(st.lists(CHANGES, max_size=12))
def test_a_pack_and_its_outlying_records_are_a_dict(
    rounds: list[dict[bytes, bytes | None]],
) -> None:
    pack, outlying = Pack(), dict[bytes, bytes]()
    expected: dict[bytes, bytes] = {}
    for changes in rounds:
        result = changed(pack, changes, outlying.keys() & changes.keys())
        pack = result.pack
        for name, value in result.outlying.items():
            if value is None:
                del outlying[name]
            else:
                outlying[name] = value
        for name, value in changes.items():
            if value is None:
                expected.pop(name, None)
            else:
                expected[name] = value
        assert not pack.records.keys() & outlying.keys()
        assert {**pack.records, **outlying} == expected
        assert pack.outlying == len(outlying)
        assert pack.is_empty == (not expected)
        sizes = [len(name) + len(value) for name, value in pack.records.items()]
        assert sum(sizes) <= LARGEST_PACK
        assert all(size <= LARGEST_RECORD for size in sizes)
        assert decode(encode(pack)) == pack


def test_equal_packs_have_equal_encodings() -> None:
    assert encode(Pack({b"a": b"1", b"b": b"2"})) == encode(Pack({b"b": b"2", b"a": b"1"}))
