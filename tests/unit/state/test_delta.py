"""A delta reads as it was written, and no damage to it goes unnoticed."""

import io
import pickle
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_spark_runner.state import delta
from beam_spark_runner.state.chain import Chain, ChainedDelta, ShardVersion, SliceStart
from beam_spark_runner.state.delta import (
    CorruptDeltaError,
    DeltaWriter,
    delta_name,
    read_chain,
    read_changes,
)

Record: TypeAlias = tuple[bytes, bytes | None]

GENESIS: Chain = (ChainedDelta(ShardVersion(1, 2), 10, SliceStart(0, b"")),)
LATER: Chain = (
    *GENESIS,
    ChainedDelta(ShardVersion(8, (1 << 63) - 1), 1 << 40, SliceStart(7, b"\xff" * 511)),
)
RECORDS: list[Record] = [(b"a", b"1"), (b"b", None), (b"a", b""), (b"", b"no key"), (b"a", None)]


def written(folder: Path, records: Iterable[Record] = RECORDS, chain: Chain = GENESIS) -> bytes:
    writer = DeltaWriter(folder / "delta")
    for key, value in records:
        if value is None:
            writer.delete(key)
        else:
            writer.put(key, value)
    writer.finish(chain)
    return (folder / "delta").read_bytes()


def read(data: bytes | BinaryIO) -> tuple[Chain, list[Record]]:
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    chain = read_chain(stream, "name")
    return chain, list(read_changes(stream, "name", chain[-1].version))


def read_records(data: bytes, version: ShardVersion = LATER[-1].version) -> None:
    """As a reader does that knows the chain from a newer delta."""
    for _ in read_changes(io.BytesIO(data), "name", version):
        pass


@pytest.mark.parametrize("chain", [GENESIS, LATER])
def test_a_delta_reads_as_it_was_written(tmp_path: Path, chain: Chain) -> None:
    assert read(written(tmp_path, chain=chain)) == (chain, RECORDS)


def test_the_writer_knows_the_size_of_the_records(tmp_path: Path) -> None:
    writer = DeltaWriter(tmp_path / "delta")
    writer.put(b"key", b"value")
    one = writer.size
    writer.delete(b"key")
    assert (one, writer.size) == (one, 2 * one - len(b"value"))
    assert one >= len(b"keyvalue")
    writer.abandon()


def test_a_delta_without_changes_can_be_read(tmp_path: Path) -> None:
    assert read(written(tmp_path, [])) == (GENESIS, [])


@given(
    records=st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=400))),
    frame_bytes=st.integers(1, 200),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_come_in_their_order_however_they_are_framed(
    tmp_path: Path, records: list[Record], frame_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "FRAME_BYTES", frame_bytes)
        assert read(written(tmp_path, records)) == (GENESIS, records)


def test_a_record_may_be_larger_than_a_frame(tmp_path: Path) -> None:
    records: list[Record] = [(b"a", b"x" * (3 << 20)), (b"b", b"y")]
    assert read(written(tmp_path, records)) == (GENESIS, records)


def test_a_stream_may_give_less_than_it_is_asked_for(tmp_path: Path) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 3))

    assert read(Slow(written(tmp_path))) == (GENESIS, RECORDS)


@pytest.mark.parametrize("is_finished", [False, True])
def test_an_abandoned_delta_is_gone(tmp_path: Path, is_finished: bool) -> None:
    writer = DeltaWriter(tmp_path / "delta")
    writer.put(b"a", b"1")
    if is_finished:
        writer.finish(GENESIS)
    writer.abandon()
    writer.abandon()
    assert not list(tmp_path.iterdir())


def test_memory_holds_about_a_frame(tmp_path: Path) -> None:
    value = bytes(10_000)
    tracemalloc.start()
    writer = DeltaWriter(tmp_path / "delta")
    for number in range(3000):
        writer.put(b"%d" % number, value)
    writer.finish(GENESIS)
    with (tmp_path / "delta").open("rb") as stream:
        assert sum(1 for _ in read_changes(stream, "name", GENESIS[-1].version)) == 3000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def framed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A small delta of several frames."""
    monkeypatch.setattr(delta, "FRAME_BYTES", 20)
    return written(folder, chain=LATER)


def test_every_flipped_byte_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = framed(tmp_path, monkeypatch)
    for place in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= flip
            with pytest.raises(CorruptDeltaError, match="the delta name cannot be used"):
                read_records(bytes(damaged))


def test_a_file_that_is_cut_off_anywhere_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = framed(tmp_path, monkeypatch)
    for length in range(len(data)):
        for reader in (read, read_records):
            with pytest.raises(CorruptDeltaError, match="it is cut off"):
                reader(data[:length])


def test_what_follows_the_end_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(CorruptDeltaError, match="follows its end"):
        read_records(written(tmp_path) + b"x")
    with pytest.raises(CorruptDeltaError, match="its end is damaged"):
        read(written(tmp_path) + b"x")


def test_the_delta_of_another_version_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(CorruptDeltaError, match="it is that of"):
        read_records(written(tmp_path, chain=GENESIS), LATER[-1].version)


def frames_of(data: bytes) -> list[bytes]:
    """The parts of a delta: what it begins with, each frame, and the tail."""
    position = delta._MAGIC.size
    parts = [data[:position]]
    while position < len(data) - delta._TAIL.size:
        _, length, _ = delta._FRAME.unpack_from(data, position)
        end = position + delta._FRAME.size + length
        parts.append(data[position:end])
        position = end
    return [*parts, data[position:]]


def test_frames_that_are_missing_or_elsewhere_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = frames_of(framed(tmp_path, monkeypatch))
    start, first, second, *others, end, tail = parts
    assert others
    for wrong in (
        [start, second, *others, end, tail],
        [start, second, first, *others, end, tail],
        [start, first, first, second, *others, end, tail],
        [start, first, second, *others, tail],
        [start, first, second, *others, end, end, tail],
        [start, first, second, *others, end],
    ):
        with pytest.raises(CorruptDeltaError):
            read_records(b"".join(wrong))


def test_records_that_were_never_written_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if a bug had lost them before they got into a frame.
    monkeypatch.setattr(delta, "FRAME_BYTES", 1)
    writer = DeltaWriter(tmp_path / "delta")
    writer.put(b"a", b"1")
    writer.count += 1
    writer.finish(GENESIS)
    with pytest.raises(CorruptDeltaError, match="it has 1 records, but says 2"):
        read((tmp_path / "delta").read_bytes())


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptDeltaError, match="does not begin as a delta does"):
        read(b"PK\x03\x04" + bytes(100))
    data = bytearray(written(tmp_path))
    data[delta._MAGIC.size - 1] = 7
    with pytest.raises(CorruptDeltaError, match="its format is 7, but only 2 is known"):
        read(bytes(data))


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(CorruptDeltaError("name", "why")))
    assert (str(error), error.name, error.why) == (
        "the delta name cannot be used: why",
        "name",
        "why",
    )


def test_names_of_deltas_sort_by_epoch() -> None:
    versions = [ShardVersion(9, 1 << 62), ShardVersion(10, 0), ShardVersion(123456, 5)]
    names = [delta_name("job", 1, 2, version) for version in versions]
    assert names == sorted(names)
    assert names[0] == "job-1-2-000000000009-4000000000000000.delta"
