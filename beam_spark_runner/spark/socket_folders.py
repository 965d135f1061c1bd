"""Where Unix sockets may be: the paths of sockets are limited."""

import tempfile

_MAX_LENGTH = 60  # a socket's path has at most 103 bytes on every system
_SHORT = "/tmp"


def socket_folder(temporary: str | None = None) -> str:
    """Return a folder for temporary files whose path is short enough for those of sockets in it.

    Args:
        temporary: the folder that is preferred. None: Python's, of which ``TMPDIR`` may have chosen
            a deep one.
    """
    preferred = temporary or tempfile.gettempdir()
    return preferred if len(preferred) <= _MAX_LENGTH else _SHORT
