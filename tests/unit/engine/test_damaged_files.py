"""Damage of all kinds of files that decide results: it ends in an error that names the file."""

import io
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import BytesCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.engine.program import ShardLocations, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.shared_file import MountedFile
from beam_spark_runner.engine.side_inputs.files import EPOCHS_SCHEMA
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.side_inputs.view_panes import FILE_CODE, PanesOfView
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.stages.table_rows_writer import TableRowsFile
from beam_spark_runner.engine.task.stored_rows import RowFile, rows_of
from beam_spark_runner.engine.task.table_files import TableFiles
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.recovery import manifest
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.recovery.sweep import delta_name, rows_name, table_rows_name, view_name
from beam_spark_runner.state.chain import ChainedDelta, ShardVersion, SliceStart
from beam_spark_runner.state.checked_blocks import DamagedFileError
from beam_spark_runner.state.checked_files import check_file
from beam_spark_runner.state.delta import DeltaWriter, read_changes
from beam_spark_runner.transforms.spark_tables.table_ddl import schema_of_ddl
from beam_spark_runner.transforms.spark_tables.to_arrow import BatchEncoder
from tests.unit.engine.rows.written_rows import edge_of

KEYS = [b"key %d" % number for number in range(3_000)]
WINDOW = GlobalWindowCoder().encode(GlobalWindow())
VERSION = ShardVersion(7, 12)
EDGE = edge_of(Delivery.SIDE_INPUT, is_global=True, access_pattern=urns.SIDE_INPUT_MULTIMAP)
ENCODE = BytesCoder().get_impl().encode_nested


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        path: A whole one.
        read: Reads all of it as the runner does, and returns what it has.
    """

    path: Path
    read: Callable[[], Any]


def view(folder: Path, *, inline: bool = False) -> Kind:
    name = view_name("main", 7, 3, "ab")
    path = folder / name
    coder = WindowedValueCoder(TupleCoder([BytesCoder()] * 2), GlobalWindowCoder())
    values = ((7, (key, key * 9)) for key in KEYS)

    def put(local: Path) -> None:
        path.write_bytes(local.read_bytes())

    with closing(PanesOfView(EDGE, coder, max_element_bytes=1 << 30)) as panes:
        panes.push([(b"", values)], [WindowedValue(None, Timestamp(9), (GlobalWindow(),))])
        panes.write(b"", name, folder, put)

    def read() -> Any:
        looked_up = EpochView(EDGE, "job", {WINDOW: (str(path),)}, GatheredRows)
        if inline:
            source = SideInputRows(id=name, code=FILE_CODE, inline=path.read_bytes(), name=name)
            looked_up = GatheredRows(source)  # type: ignore[assignment]
        return [list(looked_up.values(WINDOW, ENCODE(key))) for key in KEYS]

    return Kind(path, read)


def delta(folder: Path) -> Kind:
    path = folder / delta_name("main", 0, 1, *VERSION)
    writer = DeltaWriter(path)
    for key in KEYS:
        writer.put(key, key * 9)
    writer.finish((ChainedDelta(VERSION, writer.size, SliceStart(0, b"")),))
    return Kind(path, lambda: list(read_changes(io.BytesIO(path.read_bytes()), path.name, VERSION)))


def stored_manifest(folder: Path) -> Kind:
    path = folder / manifest.manifest_name("main", 7)
    whole = Manifest(
        epoch=7,
        fence=2,
        lineage="main",
        parent=6,
        heads={(0, each): Head(DeltaId(7, each + 9), (DeltaId(5, 1),)) for each in range(50)},
        partitions=50,
        key_groups=128,
    )
    path.write_bytes(manifest.encode(whole))
    return Kind(path, lambda: manifest.decode(path.read_bytes(), path.name))


def rows(folder: Path) -> Kind:
    path = folder / rows_name("main", 7, 2, 0, 1, 12)
    with RowFile(path, lambda: None) as file:
        for key in KEYS[:20]:
            values = [key * number for number in range(50)]
            file.write(schema.batch_of(1, np.arange(50, dtype=np.int64), None, None, values))
        file.finish()
    places = ShardLocations(lineage="main", deltas=str(folder), local=None, key_groups=8)
    return Kind(path, lambda: list(rows_of(places, path.name)))


def table_rows(folder: Path) -> Kind:
    name = table_rows_name("main", 7, 3, "ab")
    path, encoder = folder / name, BatchEncoder(schema_of_ddl("id BIGINT, key BINARY"))
    coded = [
        encoder.encode([{"id": number, "key": key * 9} for key in KEYS[:100]])
        for number in range(5)
    ]
    with closing(TableRowsFile(name, folder)) as file:
        file.push(coded, [WindowedValue(None, Timestamp(9), (GlobalWindow(),))] * len(coded))
        whole = file.finish()
        assert (whole is not None, file.count) == (True, 500)
        path.write_bytes(whole.read_bytes() if whole else b"")
    places = ShardLocations(lineage="main", deltas=str(folder), local=None, key_groups=8)
    columns = pa.schema([("id", pa.int64()), ("key", pa.binary())])
    files = TableFiles(places, columns)
    return Kind(path, lambda: [batch.to_pylist() for batch in files.read([name])])


KINDS: dict[str, Callable[[Path], Kind]] = {
    "view": view,
    "inline": lambda folder: view(folder, inline=True),
    "delta": delta,
    "manifest": stored_manifest,
    "rows": rows,
    "table rows": table_rows,
}


def damaged(content: bytes, random_: random.Random) -> bytes:
    """Flip a bit, or lose, add, move or zero some bytes, as a torn write or a bad disk does."""
    changed = bytearray(content)
    place, size = random_.randrange(len(content)), 1 + random_.randrange(len(content))
    if random_.random() < 0.5:
        size = min(size, 1 + random_.randrange(9_000))
    match random_.randrange(7):
        case 0 | 1:
            changed[place] ^= 1 << random_.randrange(8)
        case 2:
            del changed[place:]
        case 3:
            del changed[place : place + size]
        case 4:
            changed[place : place + size] = bytes(len(changed[place : place + size]))
        case 5:
            changed[place:place] = random_.randbytes(1 + size // 100)
        case _:
            piece = changed[place : place + size]
            del changed[place : place + size]
            at = random_.randrange(len(changed) + 1)
            changed[at:at] = piece
    return bytes(changed)


def check_damages(kind: Kind, count: int, seed: int) -> None:
    content = kind.path.read_bytes()
    kind.read()
    done = 0
    for number in range(2 * count):
        changed = damaged(content, random.Random(f"{seed}/{number}"))
        if changed == content:
            continue
        kind.path.write_bytes(changed)
        with pytest.raises(RunnerError) as raised:
            kind.read()
        assert kind.path.name in str(raised.value), (seed, number)
        done += 1
        if done == count:
            return
    raise AssertionError(f"only {done} damages")


@pytest.mark.parametrize("kind", KINDS)
def test_some_damages_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    check_damages(KINDS[kind](tmp_path), 100, seed=1)


@pytest.mark.rare
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", KINDS)
def test_many_damages_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    check_damages(KINDS[kind](tmp_path), 4_000, seed=2)


@pytest.mark.parametrize("kind", ["view", "delta"])
def test_damages_are_found_without_the_reader(kind: str, tmp_path: Path) -> None:
    """As a savepoint, and ``beam-spark-savepoint verify``, find them."""
    file = KINDS[kind](tmp_path)
    content = file.path.read_bytes()
    check_file(file.path.name, io.BytesIO(content))
    copies: Sequence[bytes] = [
        changed
        for number in range(100)
        if (changed := damaged(content, random.Random(number))) != content
    ]
    for changed in copies:
        with pytest.raises(RunnerError, match=file.path.name):
            check_file(file.path.name, io.BytesIO(changed))


def test_a_file_of_an_old_name_is_refused(tmp_path: Path) -> None:
    """Two whole files of one pipeline were exchanged."""
    file = view(tmp_path)
    other = tmp_path / view_name("main", 8, 3, "ab")
    file.path.rename(other)
    looked_up = EpochView(EDGE, "job", {WINDOW: (str(other),)}, GatheredRows)
    with pytest.raises(RunnerError, match=other.name):
        list(looked_up.values(WINDOW, ENCODE(KEYS[0])))


def test_a_lookup_verifies_what_it_reads_and_no_more(tmp_path: Path) -> None:
    """All blocks but one are damaged, and its keys are found."""
    file = view(tmp_path)
    content = file.path.read_bytes()
    source = SideInputRows(
        id="id", code=FILE_CODE, files=(MountedFile(str(file.path)),), name=file.path.name
    )
    blocks = len(GatheredRows(source)._places)
    assert blocks > 2
    changed = bytearray(content)
    changed[64 : len(content) // 2] = bytes(len(content) // 2 - 64)
    file.path.write_bytes(changed)
    looked_up, found, refused = GatheredRows(source), 0, 0
    for key in KEYS:
        try:
            found += len(list(looked_up.values(WINDOW, ENCODE(key))))
        except RunnerError:
            refused += 1
    assert found > 0
    assert refused > 0
    assert found + refused == len(KEYS)


def test_a_view_of_an_earlier_version_is_read_as_before(tmp_path: Path) -> None:
    """Its file is an Arrow file, without digests. A part of it is refused by name."""
    file = view(tmp_path)
    source = SideInputRows(
        id="id", code=FILE_CODE, files=(MountedFile(str(file.path)),), name=file.path.name
    )
    expected, written = file.read(), GatheredRows(source)
    with pa.ipc.new_file(str(tmp_path / "old"), EPOCHS_SCHEMA) as writer:
        for each, number in written._places:
            found = each.batch(number)
            rows = range(len(found.routes))
            columns = [
                pa.array(found.routes),
                pa.array(found.counts),
                pa.array([found.keys[row] for row in rows], pa.binary()),
                pa.array([found.values[row] for row in rows], pa.binary()),
                pa.array(found.epochs),
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=EPOCHS_SCHEMA))
    old = (tmp_path / "old").read_bytes()
    file.path.write_bytes(old)
    assert file.read() == expected
    check_file(file.path.name, io.BytesIO(old))
    for length in (0, 5, 6, 9, len(old) // 2, len(old) - 1):
        file.path.write_bytes(old[:length])
        with pytest.raises(DamagedFileError, match=file.path.name):
            file.read()
        with pytest.raises(DamagedFileError, match=file.path.name):
            check_file(file.path.name, io.BytesIO(old[:length]))


def test_a_view_that_is_missing_is_named(tmp_path: Path) -> None:
    file = view(tmp_path)
    file.path.unlink()
    with pytest.raises(DamagedFileError, match=rf"{file.path.name} .* there is no such file"):
        file.read()
