"""Reads the lines of text files block by block, with the results of Beam's text source.

Beam's source finds each line by itself, and claims it under a lock. Here, lines are claimed in
groups, by the last one of each: a tracker of offsets that grants one line grants all before it.
"""

import contextlib
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from apache_beam.coders import BytesCoder, StrUtf8Coder
from apache_beam.io import iobase, textio
from apache_beam.io.filebasedsource import _SingleFileSource
from apache_beam.io.range_trackers import OffsetRangeTracker, UnsplittableRangeTracker

_BLOCK_BYTES = 1 << 16
_MAX_LINES = 128
"""Claimed at once: no more than steps read ahead of each other in any case."""


def groups_of_lines(
    source: iobase.BoundedSource, tracker: iobase.RangeTracker
) -> Iterator[list[str] | list[bytes]] | None:
    """Return the lines of a part of a text file in lists; None: Beam's source has to read it.

    Args:
        source: A part of one file, as ``ReadFromText`` makes it, with lines of text or bytes.
        tracker: That of the part. Another thread may split it meanwhile.

    Source: ``_TextSource.read_records``.
    """
    if type(tracker) is UnsplittableRangeTracker:
        tracker = tracker._range_tracker
    if type(source) is not _SingleFileSource or type(tracker) is not OffsetRangeTracker:
        return None
    text = source._file_based_source
    if (
        type(text) is not textio._TextSource
        or type(text._coder) not in (StrUtf8Coder, BytesCoder)
        or text._escapechar is not None
    ):
        return None
    return _groups(text, source._file_name, tracker)


def _groups(
    source: textio._TextSource, name: str, tracker: OffsetRangeTracker
) -> Iterator[list[Any]]:
    delimiter: bytes = source._delimiter or b"\n"
    unread = -1  # the offset of the first line that is not claimed

    def unclaimed(stop: int) -> Any:
        return 0 if stop <= unread else iobase.RangeTracker.SPLIT_POINTS_UNKNOWN

    tracker.set_split_points_unclaimed_callback(unclaimed)
    with source.open_file(name) as file:
        unread, read = _after_header(source, file)
        if tracker.start_position() > unread:
            found = _first_line(file, tracker.start_position(), delimiter)
            if found is None:
                return
            unread, read = found
        limit = 1
        for lines, gap in _lines(file, read, delimiter):
            start = 0
            while start < len(lines):
                some = lines[start : start + limit]
                claimed, unread = _claim(tracker, unread, some, gap)
                if claimed:
                    yield _records(source, some[:claimed], gap)
                if claimed < len(some):
                    return
                start += limit
                limit = min(2 * limit, _MAX_LINES)


def _after_header(source: textio._TextSource, file: Any) -> tuple[int, bytes]:
    """Process the header; return where it ends, and what has been read from there on."""
    buffer = textio._TextSource.ReadBuffer(b"", 0)
    end = source._process_header(file, buffer)
    return end, buffer.data[buffer.position :]


def _first_line(file: Any, start: int, delimiter: bytes) -> tuple[int, bytes] | None:
    """Find the first line that begins at ``start`` or later.

    Returns:
        Its offset, and what has been read from there on. None: there is no such line.
    """
    position = start - len(delimiter) if start >= len(delimiter) else start - 1
    file.seek(position)
    data = b""
    while block := file.read(_BLOCK_BYTES):
        data += block
        found = data.find(delimiter)
        if found >= 0:
            end = found + len(delimiter)
            return position + end, data[end:]
        passed = max(0, len(data) - len(delimiter) + 1)
        position, data = position + passed, data[passed:]
    return None


def _lines(file: Any, read: bytes, delimiter: bytes) -> Iterator[tuple[list[bytes], int]]:
    """Yield the lines of the rest of a file, with the length of the delimiter after each.

    It is 0 for the last line of a file that does not end with a delimiter.

    Args:
        file: The file.
        read: What has been read before.
        delimiter: Ends lines.
    """
    size = _BLOCK_BYTES
    while True:
        end = read.rfind(delimiter)
        if end >= 0:
            yield read[:end].split(delimiter), len(delimiter)
            read = read[end + len(delimiter) :]
            size = _BLOCK_BYTES
        block = file.read(size)
        if not block:
            break
        read += block
        size *= 2  # so that a long line is not searched, and copied, once for each block of it
    if read:
        yield [read], 0


def _claim(
    tracker: OffsetRangeTracker, unread: int, lines: list[bytes], gap: int
) -> tuple[int, int]:
    """Claim as many lines as the tracker grants.

    Args:
        tracker: The tracker.
        unread: The offset of the first line.
        lines: At least one.
        gap: The length of the delimiter after each.

    Returns:
        The number of lines that are granted, and the offset of the line after them.
    """
    while True:
        end = unread + sum(map(len, lines)) + gap * len(lines)
        last, count = end - len(lines[-1]) - gap, len(lines)
        if last >= tracker.stop_position():
            offsets = [unread]
            for line in lines:
                offsets.append(offsets[-1] + len(line) + gap)
            count = bisect_left(offsets, tracker.stop_position(), 0, count)
            last, end = offsets[max(0, count - 1)], offsets[count]
        if tracker.try_claim(last):
            return count, end
        if not count:
            return 0, unread
        # It has been split since it was asked for its end, and has to accept an earlier line.
        tracker._last_attempted_record_start = tracker.last_record_start


def _records(source: textio._TextSource, lines: list[bytes], gap: int) -> list[Any]:
    """Return the records of lines of which each had a delimiter of a length after it."""
    delimiter = source._delimiter
    is_text = type(source._coder) is StrUtf8Coder
    if not source._strip_trailing_newlines:
        end = (delimiter or b"\n") if gap else b""
        lines = [line + end for line in lines]
    elif delimiter is None and gap:
        joined = b"\n".join(lines)
        if b"\r" in joined:  # of Windows, perhaps
            joined = joined.replace(b"\r\n", b"\n").removesuffix(b"\r")
        if is_text:
            with contextlib.suppress(UnicodeDecodeError):  # raised again below, for its line
                return joined.decode().split("\n")
        lines = joined.split(b"\n")
    return [line.decode() for line in lines] if is_text else lines
