"""Files that tasks store and look things up in, which somebody has damaged."""

import io
import mmap
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import lmdb
import numpy as np
from apache_beam.coders import BytesCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import routing, urns
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.engine.program import Edge, ShardLocations, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.side_inputs.view_panes import FILE_CODE, PanesOfView
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.task.stored_rows import RowFile, rows_of
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.recovery.sweep import delta_name, rows_name, view_name
from beam_spark_runner.state import local_copy
from beam_spark_runner.state.chain import ChainedDelta, ShardVersion, SliceStart
from beam_spark_runner.state.checked_files import check_file
from beam_spark_runner.state.delta import DeltaWriter
from beam_spark_runner.state.undo import undo_last_commit
from tests.fuzz.targets.base import BytesTarget, Messages, Target

_KEYS = [b"key %d" % number for number in range(50)]
_GLOBAL = GlobalWindowCoder()
_WINDOW = _GLOBAL.encode(GlobalWindow())
_ENCODE = BytesCoder().get_impl().encode_nested
_PAIRS = TupleCoder([BytesCoder(), BytesCoder()])
_VERSION = ShardVersion(7, 12)
_VIEW = view_name("main", 7, 3, "ab")
_ROWS = rows_name("main", 7, 2, 0, 1, 12)
_MAP_BYTES = 16 << 20
_DELTA = delta_name("main", 0, 1, *_VERSION)


class TakenError(Exception):
    """A damaged file was taken for a whole one."""


def _edge(delivery: Delivery, pattern: str = "") -> Edge:
    return Edge(
        dest=DestinationId(7),
        code=routing.FIRST_CODE,
        delivery=delivery,
        name="step",
        is_global=True,
        access_pattern=pattern,
    )


_MULTIMAP = _edge(Delivery.SIDE_INPUT, urns.SIDE_INPUT_MULTIMAP)


class _Files(BytesTarget):
    """Files with digests: each change is refused, by an error that has the name of the file."""

    file: str

    def run(self, case: bytes) -> object:
        path = Path(gettempdir(), self.file)
        path.write_bytes(case)
        try:
            self.read(path)
        except Exception as error:
            if self.file not in str(error):
                raise TakenError(f"{error!r} does not name the file") from error
            raise
        if case not in self._real:
            raise TakenError
        return None

    def read(self, path: Path) -> None:
        """Read all of a file."""
        raise NotImplementedError


class Views(_Files):
    """Contents of side inputs, in a checkpoint folder."""

    name, file = "views", _VIEW

    def read(self, path: Path) -> None:
        view = EpochView(_MULTIMAP, "job", {_WINDOW: (str(path),)}, GatheredRows)
        for key in _KEYS:
            list(view.values(_WINDOW, _ENCODE(key)))


class InlineSideInputs(_Files):
    """Contents of small side inputs, in the program of a task."""

    name, file = "inline-side-inputs", _VIEW

    def read(self, path: Path) -> None:
        content = path.read_bytes()
        rows = GatheredRows(
            SideInputRows(id=self.file, code=FILE_CODE, inline=content, name=self.file)
        )
        for key in _KEYS:
            list(rows.values(_WINDOW, _ENCODE(key)))


class StoredRows(_Files):
    """Rows between two Spark jobs of an epoch."""

    name, file = "stored-rows", _ROWS

    def read(self, path: Path) -> None:
        places = ShardLocations(lineage="main", deltas=str(path.parent), local=None, key_groups=8)
        list(rows_of(places, path.name))


class ViewsOfSavepoints(_Files):
    """Views, when they are copied to a savepoint."""

    name, file = "savepoint-views", _VIEW

    def read(self, path: Path) -> None:
        check_file(self.file, io.BytesIO(path.read_bytes()))


class DeltasOfSavepoints(ViewsOfSavepoints):
    """Deltas, when they are copied to a savepoint."""

    name, file = "savepoint-deltas", _DELTA


class TagsOfCopies(BytesTarget):
    """Tags of local copies. A copy with a damaged one is not used."""

    name = "local-copies"

    def begin(self) -> None:
        local_copy.MAP_BYTES = _MAP_BYTES  # a process of cases has no terabyte of addresses
        self._folder = Path(gettempdir(), "copy")
        local_copy.rebuild(self._folder, _no_file, lambda version: "", None)

    def run(self, case: bytes) -> object:
        opened = lmdb.open(str(self._folder), map_size=_MAP_BYTES, max_dbs=1, lock=False)
        with closing(opened), opened.begin(write=True) as txn:
            txn.put(b"tag", case)
        for head in (None, _VERSION):
            copy = local_copy.open_copy(self._folder, head)
            if copy is not None:
                copy.txn.abort()
                copy.env.close()
                if case not in self._real:
                    raise TakenError
        return None


class UndoneCopies(BytesTarget):
    """The first pages of local copies whose last commit is undone, before they are opened."""

    name = "undone-copies"

    def run(self, case: bytes) -> object:
        folder = Path(gettempdir())
        (folder / "data.mdb").write_bytes(case)
        return undo_last_commit(folder)


def _no_file(name: str) -> Any:
    raise FileNotFoundError(name)


def _view(folder: Path) -> bytes:
    coder = WindowedValueCoder(_PAIRS, _GLOBAL)
    found: list[bytes] = []
    with closing(PanesOfView(_MULTIMAP, coder, max_element_bytes=1 << 30)) as panes:
        values = ((7, (key, key * 9)) for key in _KEYS)
        panes.push([(b"", values)], [WindowedValue(None, Timestamp(9), (GlobalWindow(),))])
        panes.write(b"", _VIEW, folder, lambda path: found.append(path.read_bytes()))
    return found[0]


def _rows(folder: Path) -> bytes:
    path = folder / _ROWS
    with RowFile(path, lambda: None) as file:
        for key in _KEYS[:5]:
            batch = schema.batch_of(1, np.arange(3, dtype=np.int64), None, None, [key] * 3)
            file.write(batch)
        file.finish()
    return path.read_bytes()


def _delta(folder: Path) -> bytes:
    writer = DeltaWriter(folder / _DELTA)
    for key in _KEYS:
        writer.put(key, key * 9)
    writer.finish((ChainedDelta(_VERSION, 10, SliceStart(0, b"")),))
    return (folder / _DELTA).read_bytes()


def _copy(folder: Path) -> bytes:
    """Return the meta pages of a local copy with two commits."""
    local_copy.rebuild(folder / "copy", _no_file, lambda version: "", None)
    with (folder / "copy" / "data.mdb").open("rb") as file:
        return file.read(2 * mmap.PAGESIZE)


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        views, rows, deltas = [_view(folder)], [_rows(folder)], [_delta(folder)]
        copies = [_copy(folder)]
        tag = local_copy._tag((ChainedDelta(_VERSION, 10, SliceStart(0, b"k")),))
    return [
        Views(views),
        InlineSideInputs(views),
        StoredRows(rows),
        ViewsOfSavepoints(views),
        DeltasOfSavepoints(deltas),
        TagsOfCopies([tag, local_copy._tag(())]),
        UndoneCopies(copies),
    ]
