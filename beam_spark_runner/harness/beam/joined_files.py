"""How small files of one write become one, for those of Beam's file sinks that allow it.

No element is decoded by user code: bytes are copied, or blocks of Avro, or row groups of Parquet.
"""

import contextlib
import copy
import functools
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from apache_beam.io import textio, tfrecordio
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

Join = Callable[[Any, Sequence[str], str], None]
"""Writes one file: takes the sink, the paths of the files, and the path of the new file."""
_AS_IT_IS = CompressionTypes.UNCOMPRESSED
_ALSO_IN_PARTS = (_AS_IT_IS, CompressionTypes.GZIP, CompressionTypes.BZIP2)
"""Kinds of compression whose files may be written one after another to one file."""


def way_to_join(sink: Any, results: Sequence[str]) -> Join | None:
    """Return what joins the files of a sink; None: they cannot be joined.

    The answer depends on nothing but the arguments, so that a repeated step gets the same one.

    Args:
        sink: The ``FileBasedSink``.
        results: The paths of its temporary files; at least one.
    """
    if type(sink) in (textio._TextSink, tfrecordio._TFRecordSink):
        compression = sink.compression_type
        if compression == CompressionTypes.AUTO:
            compression = CompressionTypes.detect_compression_type(results[0])
        if type(sink) is textio._TextSink and (
            sink._header is not None or sink._footer is not None
        ):
            return _join_lines if compression == _AS_IT_IS else None
        return _join_bytes if compression in _ALSO_IN_PARTS else None
    # A process that has such a sink has imported its module, and with it PyArrow or fastavro.
    avroio, parquetio = (
        sys.modules.get(f"apache_beam.io.{name}") for name in ("avroio", "parquetio")
    )
    if avroio is not None and type(sink) is avroio._FastAvroSink:
        return functools.partial(_join_blocks, avroio.block_reader)
    if parquetio is not None and type(sink) is parquetio._ParquetSink:
        is_safe = _is_read_as_it_was_written(parquetio.pq, sink)
        return functools.partial(_join_row_groups, parquetio.pq) if is_safe else None
    return None


def _join_bytes(sink: Any, parts: Sequence[str], target: str) -> None:
    with FileSystems.create(target, sink.mime_type, _AS_IT_IS) as file:
        for part in parts:
            with _open_part(sink, part) as source:
                file.write(source.read())


def _join_lines(sink: Any, parts: Sequence[str], target: str) -> None:
    """Join texts that begin with a header, or end with a footer: the sink writes it once."""
    end = "\n" if sink._append_trailing_newlines else ""
    first, last = (
        0 if text is None else len(f"{text}{end}".encode()) for text in (sink._header, sink._footer)
    )
    with _open_target(sink, target) as file:
        for part in parts:
            with _open_part(sink, part) as source:
                content = source.read()
                file.write(content[first : len(content) - last])


def _join_blocks(block_reader: Any, sink: Any, parts: Sequence[str], target: str) -> None:
    with _open_target(sink, target) as writer:
        for part in parts:
            with _open_part(sink, part) as source:
                for block in block_reader(source):
                    writer.write_block(block)


def _join_row_groups(pq: Any, sink: Any, parts: Sequence[str], target: str) -> None:
    with _open_target(sink, target) as writer:
        for part in parts:
            with _open_part(sink, part) as source:
                file = pq.ParquetFile(io.BytesIO(source.read()))
                for number in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(number))


def _is_read_as_it_was_written(pq: Any, sink: Any) -> bool:
    """Whether rows of a sink's Parquet files have the types that the sink writes."""
    if sink._use_deprecated_int96_timestamps:  # read as nanoseconds, which end in the year 2262
        return False
    file = io.BytesIO()
    pq.write_table(
        sink._schema.empty_table(),
        file,
        use_compliant_nested_type=sink._use_compliant_nested_type,
    )
    return bool(pq.read_schema(file).equals(sink._schema))


def _open_part(sink: Any, path: str) -> Any:
    return FileSystems.open(path, sink.mime_type, _AS_IT_IS)


@contextlib.contextmanager
def _open_target(sink: Any, path: str) -> Iterator[Any]:
    """Open a file as the sink does, and close it as the sink does."""
    sink = copy.copy(sink)  # those of Avro and Parquet have state for one file only
    writer = sink.open(path)
    try:
        yield writer
    finally:
        sink.close(writer)
