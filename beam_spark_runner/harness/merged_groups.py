"""The values of one key in merged windows, where they are more than memory has room for."""

from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.spill import MEMORY_LIMIT_BYTES, StreamedValues, ValueLog
from beam_spark_runner.semantics.grouping import WindowGrouping, pane_of


def merged_groups(
    key: Any,
    source: Iterator[bytes],
    decode: Callable[[bytes], WindowedValue],
    grouping: WindowGrouping,
    limit_bytes: int = MEMORY_LIMIT_BYTES,
) -> Iterator[WindowedValue]:
    """Yield the panes that ``grouping`` gives, with no more in memory than its windows.

    The values go to disk, and their windows are merged. Then they go to files once more: one
    for each window of ``limit_bytes`` or more, whose pane has StreamedValues, to be closed by
    the caller; and one for as many smaller windows as have that much together.

    Args:
        key: decoded.
        source: windowed values of the key, encoded.
        decode: gives one of them.
        grouping: merges.
        limit_bytes: that may be in memory.

    Example:
        windows of 1, 20 and 2 MB, 16 MB of memory   ==>   files {1, 2}, {20}
    """
    values = ValueLog()
    sizes: dict[Any, int] = {}
    for coded in source:
        values.append(coded)
        for window in decode(coded).windows:
            sizes[window] = sizes.get(window, 0) + len(coded)
    becomes = grouping.merge(sizes)
    merged_sizes: dict[Any, int] = {}
    for window, size in sizes.items():
        merged = becomes.get(window, window)
        merged_sizes[merged] = merged_sizes.get(merged, 0) + size

    files = _Files(merged_sizes, limit_bytes)
    times: dict[Any, Timestamp] = {}
    for coded in values:
        value = decode(coded)
        merged_windows = [becomes.get(window, window) for window in value.windows]
        files.append(coded, merged_windows)
        for window in merged_windows:
            time = grouping.output_time(window, (value.timestamp,))
            if window in times:
                time = grouping.combine_times(window, times[window], time)
            times[window] = time
    values.close()

    for some in files.of_several:
        lists: dict[Any, list[Any]] = {}
        for coded in some:
            value = decode(coded)
            for window in value.windows:
                merged = becomes.get(window, window)
                if files.holder[merged] is some:
                    lists.setdefault(merged, []).append(value.value)
        some.close()
        for window, elements in lists.items():
            yield pane_of((key, elements), window, times[window])
    for window, log in files.of_one.items():
        streamed = StreamedValues(iter(log), lambda coded: decode(coded).value)
        yield pane_of((key, streamed), window, times[window])
        log.close()


class _Files:
    """Which file has the values of which window."""

    def __init__(self, sizes: dict[Any, int], limit_bytes: int) -> None:
        self.holder: dict[Any, ValueLog] = {}
        self.of_one: dict[Any, ValueLog] = {}
        self.of_several: list[ValueLog] = []
        room = 0
        for window, size in sizes.items():
            if size >= limit_bytes:
                self.of_one[window] = self.holder[window] = ValueLog(limit_bytes=-1)
                continue
            if size > room:
                self.of_several.append(ValueLog(limit_bytes=-1))
                room = limit_bytes
            self.holder[window] = self.of_several[-1]
            room -= size

    def append(self, coded: bytes, merged_windows: list[Any]) -> None:
        """Add a value: to a window's own file as often as it is in the window, else once."""
        for number, window in enumerate(merged_windows):
            log = self.holder[window]
            if window in self.of_one or all(
                self.holder[earlier] is not log for earlier in merged_windows[:number]
            ):
                log.append(coded)
