"""Side inputs of streaming pipelines: what steps look up in an epoch."""

import hashlib
import heapq
import operator
from collections.abc import Callable, Iterator, Mapping

from beam_spark_runner.engine.program import Edge, SideInputRows
from beam_spark_runner.engine.shared_file import MountedFile, SharedFile
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows, distinct_keys
from beam_spark_runner.engine.side_inputs.view_panes import FILE_CODE
from beam_spark_runner.state.checked_blocks import DamagedFileError
from beam_spark_runner.state.stored_deltas import ShardStorageError


class EpochView:
    """The content of one side input in an epoch. See ``SideInputLookup``.

    Args:
        edge: the edge of the side input.
        job_id: the id of the job.
        files: encoded window -> the paths of the files with the parts of its content.
        open_file: opens a file, or returns the one that is open.
        file_at: returns the file at one of these paths.

    Attributes:
        cache_id: the id under which operations of an embedded stage may keep the view beyond a
            bundle; empty if they do not: Beam keeps views in the global window.
    """

    def __init__(
        self,
        edge: Edge,
        job_id: str,
        files: Mapping[bytes, tuple[str, ...]],
        open_file: Callable[[SideInputRows], GatheredRows],
        file_at: Callable[[str], SharedFile] = MountedFile,
    ) -> None:
        version = hashlib.blake2b(repr(sorted(files.items())).encode(), digest_size=8).hexdigest()
        self.id = f"{job_id}/{edge.dest}/{version}"
        self.cache_id = self.id if edge.is_global else ""
        self._code = FILE_CODE
        self._files = files
        self._open, self._file_at = open_file, file_at

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        """See ``SideInputLookup.values``. A window without content is empty.

        Values of earlier epochs come first, whichever part they are in.

        Raises:
            DamagedFileError: a file is damaged or missing.
            ShardStorageError: a file cannot be read.
        """
        parts = [self._part_at(path).rows(window, key) for path in self._files.get(window, ())]
        for _, coded, count in heapq.merge(*parts, key=operator.itemgetter(0)):
            yield coded, count

    def keys(self, window: bytes) -> Iterator[bytes]:
        """See ``SideInputLookup.keys``; raises as ``values`` does."""
        parts = [self._part_at(path).routed_keys(window) for path in self._files.get(window, ())]
        return distinct_keys(parts)

    def _part_at(self, path: str) -> GatheredRows:
        name = path.rpartition("/")[2]
        source = SideInputRows(id=path, code=self._code, files=(self._file_at(path),), name=name)
        try:
            return self._open(source)
        except FileNotFoundError as error:
            raise DamagedFileError(path, "there is no such file") from error
        except OSError as error:
            raise ShardStorageError(path, str(error)) from error
