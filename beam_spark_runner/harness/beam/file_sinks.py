"""Beam's file sinks find the files of a window that have their names already.

Beam renames the temporary files of a window in its last step. If that step is repeated, because the
program was killed in between, files that have their names are skipped. But the pattern by which
these are searched for has the letter of the template, W or V, where names have the window. So none
is found, and the step would fail each time that the pipeline is started again.
"""

import copy
import functools
from typing import Any

from apache_beam.io.filebasedsink import FileBasedSink


@functools.cache
def find_files_of_windows() -> None:
    """Have the sinks of this process search for names with windows in them.

    Source: ``FileBasedSink._check_state_for_finalize_write``.
    """
    FileBasedSink._get_final_name_glob = _pattern_of_names


def _pattern_of_names(sink: Any, num_shards: int, w: Any = None) -> str:
    named = copy.copy(sink)
    named.shard_name_format = sink._template_replace_window(sink.shard_name_glob_format)
    pattern: str = named._get_final_name(0, num_shards, w)
    return pattern.replace("[", "?")  # it begins a set of characters, and cannot be escaped
