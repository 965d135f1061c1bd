"""Finds the files that Beam's own sinks have written."""

import re
from collections.abc import Iterator, Mapping

from apache_beam.io.filebasedsink import FileBasedSink

from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.sinks import do_fn_info

_PLACEHOLDER = re.compile("S+|N+|U+|W+|V+")  # shard, shards, UUID, window, window in UTC
_FINALIZE = "/FinalizeWrite"  # of ``iobase.WriteImpl``


def written_files(graph: Graph, counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the pattern of the files of each ``FileBasedSink``, and their number.

    A single file has its name in place of a pattern.

    Example:
        out/joined-*-of-00002, 2

    Args:
        graph: The graph of a batch pipeline that was built in this process, and has succeeded.
        counts: The numbers of elements of its collections: a sink emits the name of each file.
    """
    for step in graph.transforms.values():
        if not step.name.endswith(_FINALIZE):
            continue
        number = sum(counts.get(str(id_), 0) for id_ in step.outputs.values())
        _, arguments, *_ = do_fn_info(step)
        for sink in arguments:
            if isinstance(sink, FileBasedSink) and number:
                shards = _shards(sink.shard_name_template, number)
                path = f"{sink.file_path_prefix.get()}{shards}{sink.file_name_suffix.get()}"
                yield path, number


def _shards(template: str, number: int) -> str:
    """Fill in a template of names of shards.

    Example:
        >>> _shards("-SSSSS-of-NNNNN", 2), _shards("-SSSSS-of-NNNNN", 1), _shards("-U-SS", 1)
        ('-*-of-00002', '-00000-of-00001', '-*-00')
    """

    def fill(match: re.Match[str]) -> str:
        width = len(match[0])
        if match[0][0] == "N":
            return f"{number:0{width}}"
        return "0" * width if match[0][0] == "S" and number == 1 else "*"

    return _PLACEHOLDER.sub(fill, template)
