"""Files with tokens and private keys, which other users must not be able to read or change."""

import os
import stat
from pathlib import Path

from beam_spark_runner.core.errors import OptionsError

_ROOT = 0


def read_secret(option: str, path: str) -> bytes:
    """Return the content of a file that only its owner can access: this user, or root.

    The group may read a file of root's, since orchestrators mount secrets in this way (a
    Kubernetes Secret with ``fsGroup``). PostgreSQL has the same rule for its server's key.

    Args:
        option: The option that names the file, for errors.
        path: The path of the file; links are followed.

    Raises:
        OptionsError: Other users can read or change the file.
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as file:
        status = os.fstat(file.fileno())  # of the open file, which nobody can replace meanwhile
        check_owner_and_mode(option, path, status.st_uid, status.st_mode)
        return file.read()


def check_owner_and_mode(option: str, path: str, owner: int, mode: int) -> None:
    """Check who can access the file of a secret; see ``read_secret``.

    Args:
        option: The option that names the file.
        path: The path of the file.
        owner: The user id of its owner.
        mode: Its mode; only the bits of permissions matter.

    Raises:
        OptionsError: Other users can read or change the file.
    """
    user = os.geteuid()
    if owner not in (user, _ROOT):
        raise OptionsError(
            option,
            f"{path} belongs to another user (uid {owner}), who can change it; it must belong to "
            f"you (chown {user}) or to root",
        )
    by_others = stat.S_IRWXG | stat.S_IRWXO
    if owner == _ROOT:
        by_others &= ~stat.S_IRGRP
    if mode & by_others:
        allowed = "640" if owner == _ROOT and owner != user else "600"
        raise OptionsError(
            option,
            f"other users can access {path} (mode {stat.S_IMODE(mode):04o}), which is a secret: "
            f"chmod {allowed} {path}",
        )
