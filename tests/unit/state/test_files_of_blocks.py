"""Files of blocks: what is read is what was written, or an error names the file."""

import io
import pickle
import random

import pytest

from beam_spark_runner.state.checked_blocks import BlockWriter, DamagedFileError, reader_of

NAME = "main-000000000012-3-ab.view"
BLOCKS = [b"one", b"", b"x" * 64, b"three" * 100]


def written(blocks: list[bytes], name: str = NAME) -> bytes:
    sink = io.BytesIO()
    writer = BlockWriter(sink, name)
    for number, block in enumerate(blocks):
        writer.add(block, number, number + 10)
    writer.finish()
    return sink.getvalue()


def read(coded: bytes, name: str = NAME) -> list[bytes]:
    return [bytes(each) for each in reader_of(io.BytesIO(coded), name).contents()]


def test_blocks_come_back_with_their_padding() -> None:
    found = read(written(BLOCKS))
    assert [each[: len(block)] for each, block in zip(found, BLOCKS, strict=True)] == BLOCKS
    assert all(len(each) % 64 == 0 for each in found)
    assert read(written([])) == []


def test_the_index_has_what_the_writer_says_about_a_block() -> None:
    blocks = reader_of(io.BytesIO(written(BLOCKS)), NAME).blocks
    assert [(each.first, each.last) for each in blocks] == [(n, n + 10) for n in range(4)]
    assert all(each.start % 64 == 0 for each in blocks)


def test_each_bit_counts() -> None:
    coded = written(BLOCKS)
    for place in range(len(coded)):
        changed = bytearray(coded)
        changed[place] ^= 1 << random.Random(place).randrange(8)
        with pytest.raises(DamagedFileError, match=NAME):
            read(bytes(changed))


def test_each_length_counts() -> None:
    coded = written(BLOCKS)
    for length in range(len(coded)):
        with pytest.raises(DamagedFileError, match=NAME):
            read(coded[:length])
    with pytest.raises(DamagedFileError, match=NAME):
        read(coded + b"\0")


def test_another_file_in_its_place_is_refused() -> None:
    with pytest.raises(DamagedFileError, match="or it is another file"):
        read(written(BLOCKS, "main-000000000011-3-ab.view"))


def test_only_what_is_read_is_verified() -> None:
    coded = bytearray(written(BLOCKS))
    reader = reader_of(io.BytesIO(coded), NAME)
    coded[reader.blocks[3].start] ^= 1
    reader = reader_of(io.BytesIO(coded), NAME)
    assert bytes(reader.content(reader.blocks[0])).startswith(b"one")
    with pytest.raises(DamagedFileError, match="the digest of the block at"):
        reader.content(reader.blocks[3])


def test_an_error_says_what_operators_can_do() -> None:
    error = pickle.loads(pickle.dumps(DamagedFileError(f"/folder/{NAME}", "it is cut off")))
    assert f"/folder/{NAME} cannot be used: it is cut off (a file of epoch 12)" in str(error)
    assert "`beam-spark-savepoint verify FOLDER`" in str(error)
    assert "verify" not in str(DamagedFileError("side-input", "it is cut off"))
