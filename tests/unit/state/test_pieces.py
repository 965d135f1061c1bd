"""Long values are several entries in the state store, and one record."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote import pieces
from beam_spark_runner.state.remote.key_store import Change, StateStoreError, Structure
from beam_spark_runner.state.remote.pieces import divided, first_piece, names_of_others
from beam_spark_runner.state.store_keys import numbered
from tests.unit.state.pieced_values import EPOCHS, PREFIX, SMALL, content, run_epochs, shard_of
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import Files

KEY = PREFIX + numbered(1)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", SMALL)


@given(st.integers(0, 5 * SMALL))
def test_the_pieces_of_a_value_are_the_value(size: int) -> None:
    value = content(size, 1)
    first, *others = divided(Change(Structure.OUTLYING, b"name", value))
    assert first.value is not None
    begin, count = first_piece(first.value)
    assert [each.name for each in others] == names_of_others(b"name", count)
    parts = [begin, *(each.value or b"" for each in others)]
    assert b"".join(parts) == value
    assert max(map(len, parts)) <= SMALL
    assert all(parts) or not value


@given(EPOCHS)
def test_long_values_are_what_a_dict_would_have(epochs: Sequence[Mapping[int, int | None]]) -> None:
    with TemporaryDirectory() as scratch:
        run_epochs(SimulatedStore(), Path(scratch), epochs, SMALL)


@pytest.mark.parametrize("is_open", [False, True], ids=["before it is opened", "while it is open"])
def test_a_missing_piece_is_found_and_its_group_rebuilt(tmp_path: Path, is_open: bool) -> None:
    files, store = Files(), SimulatedStore()
    value = content(3 * SMALL, 1)
    with shard_of(store, files, KeyedHead(), tmp_path) as shard:
        shard.records.put(KEY, value)
        head = shard.seal(ShardVersion(1, 1))
    shard_of(store, files, head, tmp_path).close()
    found = store.groups[0].entries[Structure.PIECES]
    assert len(found) == 2
    if not is_open:
        found.popitem()
    with shard_of(store, files, head, tmp_path) as shard:
        assert shard.was_rebuilt is not is_open
        if is_open:
            found.popitem()
        assert shard.records.get(KEY) == value
        assert shard.was_rebuilt


def test_a_value_in_wrong_pieces_is_an_error(tmp_path: Path) -> None:
    files, store = Files(), SimulatedStore()
    with shard_of(store, files, KeyedHead(), tmp_path) as shard:
        shard.records.put(KEY, content(3 * SMALL, 1))
        head = shard.seal(ShardVersion(1, 1))
    with shard_of(store, files, head, tmp_path) as shard:
        found = store.groups[0].entries[Structure.PIECES]
        found[b"another one"] = found.pop(next(iter(found)))
        with pytest.raises(StateStoreError, match="wrong pieces"):
            shard.records.get(KEY)
