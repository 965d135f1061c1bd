"""The storage of keyed deltas, of which this host has the last ones on its own disk, too."""

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

from beam_spark_runner.recovery.sweep import delta_version_in
from beam_spark_runner.state.delta_files import DeltaFiles


class KeptDeltas:
    """See ``DeltaFiles``. A delta that a task of this host has stored is read from here.

    The task of the next epoch applies the last one, normally on the same host. Names have the
    numbers of attempts, which are random, so that a file is what its name says. Only those of the
    last epoch of a partition are kept.

    Args:
        files: The storage that all hosts share.
        folder: A folder on the local disk, of all tasks of the job. It need not exist.
    """

    def __init__(self, files: DeltaFiles, folder: Path) -> None:
        self._files, self._folder = files, folder

    def open(self, name: str) -> BinaryIO:
        """See ``DeltaFiles``."""
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / name).open("rb")
        return self._files.open(name)

    def put(self, name: str, local: Path) -> None:
        """See ``DeltaFiles``. The local file is moved."""
        self._files.put(name, local)
        self._folder.mkdir(exist_ok=True)
        os.replace(local, self._folder / name)
        partition, version = _partition_of(name), delta_version_in(name)
        assert version is not None
        for each in os.listdir(self._folder):
            other = delta_version_in(each)
            if _partition_of(each) == partition and other is not None and other[0] < version[0]:
                self._remove(each)

    def forget(self, name: str) -> bool:
        """Remove a file that is damaged from this host; return whether it was here."""
        return self._remove(name)

    def _remove(self, name: str) -> bool:
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:  # another attempt has removed it
            return False
        return True


def _partition_of(name: str) -> str:
    return name.rsplit("-", 2)[0]  # epoch and attempt follow
