"""The keyed records of a stage that two threads use: one of them answers an SDK harness."""

from collections.abc import Iterable, Sequence

from beam_spark_runner.state.locked_records import LockedRecords
from beam_spark_runner.state.remote.remote_records import RemoteRecords


class LockedKeys(LockedRecords):
    """See ``RemoteRecords`` and ``LockedRecords``."""

    def __init__(self, records: RemoteRecords) -> None:
        super().__init__(records)
        self._records = records

    def ask(self, user_keys: Iterable[bytes]) -> None:
        """See ``RemoteRecords``."""
        with self._using:
            self._records.ask(user_keys)

    def ask_values(self, user_keys: Iterable[bytes]) -> None:
        """See ``RemoteRecords``."""
        with self._using:
            self._records.ask_values(user_keys)

    def ask_records(self, keys: Sequence[bytes]) -> None:
        """See ``RemoteRecords``."""
        with self._using:
            self._records.ask_records(keys)
