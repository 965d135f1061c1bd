"""The user as which containers run, and processes as it."""

import os
import pwd
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple


class User(NamedTuple):
    """A user of this machine."""

    uid: int
    gid: int


def container_user() -> User:
    """Return the user of node managers and their containers.

    Clusters run containers as a user without a home, such as ``yarn`` or ``nobody``. Only root can
    start processes of another user: without root, it is this one, whose HOME YARN replaces, too.
    """
    if os.geteuid():
        return User(os.geteuid(), os.getegid())
    nobody = pwd.getpwnam("nobody")
    return User(nobody.pw_uid, nobody.pw_gid)


def options_of(user: User) -> dict[str, Any]:
    """Return the arguments with which ``Popen`` starts a process of a user."""
    if user.uid == os.geteuid():
        return {}
    return {"user": user.uid, "group": user.gid, "extra_groups": []}


def can_run(command: Sequence[str], user: User) -> bool:
    """Whether a program runs, and ends well, as a user."""
    try:
        done = subprocess.run(
            command, **options_of(user), cwd="/", capture_output=True, timeout=30, check=False
        )
    except OSError:
        return False
    return done.returncode == 0
