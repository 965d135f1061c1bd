"""Groups the values of one key by merged windows, if they are larger than memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.values.spilled_group import ValueLog, ValueLogs
from beam_spark_runner.semantics.grouping import WindowGrouping

_PARTS = 32  # twice as many files may be open at once, and one more


def merged_groups(
    source: Iterator[bytes],
    decode: Callable[[bytes], WindowedValue],
    grouping: WindowGrouping,
    logs: ValueLogs,
) -> Iterator[tuple[list[Any] | ValueLog, Any, Timestamp]]:
    """Yield the groups of ``grouping``, with all windows but not all values in memory.

    The values are written to disk, and their windows are merged. Then the values are partitioned
    by window, until each partition has a single window or fits into memory.

    Args:
        source: The encoded windowed values of the key.
        decode: Decodes one of them.
        grouping: Merges windows.
        logs: The value logs of the task, with the limit on memory.

    Yields:
        Values, merged window, and timestamp. If the values reach the limit, they are a log of
        encoded windowed values, which the caller closes.

    Example:
        windows of 1, 20 and 2 MB, 16 MB of memory   ==>   files {1, 2}, {20}
    """
    values = logs.new()
    unmerged_sizes: dict[Any, int] = {}
    for coded in source:
        values.append(coded)
        for window in decode(coded).windows:
            unmerged_sizes[window] = unmerged_sizes.get(window, 0) + len(coded)
    becomes = grouping.merge(unmerged_sizes)
    sizes: dict[Any, int] = {}
    for window, size in unmerged_sizes.items():
        target = becomes.get(window, window)
        sizes[target] = sizes.get(target, 0) + size
    times: dict[Any, Timestamp] = {}

    def timed() -> Iterator[tuple[bytes, WindowedValue]]:
        for coded in values:
            value = decode(coded)
            for window in _merged_windows(value, becomes):
                time = grouping.output_time(window, (value.timestamp,))
                if window in times:
                    time = grouping.combine_times(window, times[window], time)
                times[window] = time
            yield coded, value
        values.close()

    parting = _Parting(decode, becomes, logs)
    for window, elements in parting.groups(timed(), sizes):
        yield elements, window, times[window]


def _merged_windows(value: WindowedValue, becomes: Mapping[Any, Any]) -> list[Any]:
    return [becomes.get(window, window) for window in value.windows]


class _Parting:
    """Partitions values by their merged windows."""

    def __init__(
        self,
        decode: Callable[[bytes], WindowedValue],
        becomes: Mapping[Any, Any],
        logs: ValueLogs,
    ) -> None:
        self._decode = decode
        self._becomes = becomes
        self._task_logs = logs
        self._limit_bytes = logs.group_memory_bytes

    def groups(
        self, values: Iterable[tuple[bytes, WindowedValue]], sizes: Mapping[Any, int]
    ) -> Iterator[tuple[Any, list[Any] | ValueLog]]:
        """Yield each window of ``sizes`` with its values.

        Args:
            values: The values, encoded and decoded; they may be in other windows, too.
            sizes: The size of each merged window's values, in bytes.
        """
        parts = self._parts(sizes)
        for part, log in zip(parts, self._logs(values, parts), strict=True):
            size = sum(sizes[window] for window in part)
            if len(part) == 1 and size >= self._limit_bytes:
                yield part[0], log
                continue
            if len(part) == 1:
                yield part[0], [self._decode(coded).value for coded in log]
            elif size <= self._limit_bytes:
                yield from self._lists(log, part).items()
            else:
                again = ((coded, self._decode(coded)) for coded in log)
                yield from self.groups(again, {window: sizes[window] for window in part})
            log.close()

    def _parts(self, sizes: Mapping[Any, int]) -> list[list[Any]]:
        """Divide the windows into parts; a window as large as a part is one."""
        size_of_part = max(self._limit_bytes, sum(sizes.values()) // _PARTS)
        parts: list[list[Any]] = []
        open_part: list[Any] = []
        room = 0
        for window, size in sizes.items():
            if size >= size_of_part:
                parts.append([window])
                continue
            if size > room:
                open_part, room = [], size_of_part
                parts.append(open_part)
            open_part.append(window)
            room -= size
        return parts

    def _logs(
        self, values: Iterable[tuple[bytes, WindowedValue]], parts: list[list[Any]]
    ) -> list[ValueLog]:
        """Write the values of each part to a log.

        In a part of one window, a value is repeated for each of its windows that were merged into
        that window; in other parts, it is written once.
        """
        logs = [self._task_logs.new(in_memory=False) for _ in parts]
        part_of = {window: number for number, part in enumerate(parts) for window in part}
        is_of_one = [len(part) == 1 for part in parts]
        for coded, value in values:
            numbers: list[int] = []
            for window in _merged_windows(value, self._becomes):
                number = part_of.get(window)
                if number is not None and (is_of_one[number] or number not in numbers):
                    numbers.append(number)
                    logs[number].append(coded)
        return logs

    def _lists(self, log: ValueLog, part: list[Any]) -> dict[Any, list[Any]]:
        lists: dict[Any, list[Any]] = {window: [] for window in part}
        for coded in log:
            value = self._decode(coded)
            for window in _merged_windows(value, self._becomes):
                if window in lists:
                    lists[window].append(value.value)
        return lists
