"""Folders with names that other users can guess, in folders where others may write."""

import errno
import os
import stat
from pathlib import Path


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can access, unless it exists; return its path.

    Another user may have made it first, to read or replace what is written to it.

    Args:
        path: The path of the folder. Its parents are made, too.

    Raises:
        PermissionError: The path is a folder of another user, or leads to another place.
        OSError: The folder cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise PermissionError(
            errno.EACCES, "it is a link, which another user may have made; remove it", str(path)
        ) from error
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid():
            raise PermissionError(
                errno.EACCES,
                f"it belongs to another user (uid {status.st_uid}), who could replace what is in "
                "it; remove it, or set TMPDIR to a folder of your own",
                str(path),
            )
        if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            os.fchmod(folder, 0o700)
    finally:
        os.close(folder)
    return path
