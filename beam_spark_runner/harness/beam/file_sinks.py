"""What Beam's file sinks get wrong in streaming pipelines, put right.

Names of windows: Beam renames the temporary files of a window in its last step. If that step is
repeated, because the program was killed in between, files that have their names are skipped. But
the pattern by which these are searched for has the letter of the template, W or V, where names have
the window. So none is found, and the step would fail each time that the pipeline is started again.

Open files: in a bundle with several shards, Beam writes all of them at the same time, through one
sink. Those of Avro and Parquet keep what belongs to one file, so that files lose elements.
"""

import copy
import functools
from typing import Any

from apache_beam.io.filebasedsink import FileBasedSink


@functools.cache
def mend_file_sinks() -> None:
    """Mend the sinks of this process.

    Source: ``FileBasedSink._check_state_for_finalize_write`` and ``_WriteWindowedBundleDoFn``.
    """
    open_writer = FileBasedSink.open_writer

    @functools.wraps(open_writer)
    def open_by_itself(sink: Any, init_result: Any, uid: str) -> Any:
        return open_writer(copy.deepcopy(sink), init_result, uid)

    FileBasedSink.open_writer = open_by_itself
    FileBasedSink._get_final_name_glob = _pattern_of_names


def _pattern_of_names(sink: Any, num_shards: int, w: Any = None) -> str:
    named = copy.copy(sink)
    named.shard_name_format = sink._template_replace_window(sink.shard_name_glob_format)
    pattern: str = named._get_final_name(0, num_shards, w)
    return pattern.replace("[", "?")  # it begins a set of characters, and cannot be escaped
