"""Paths in the containers of a cluster manager, each of which has another working folder."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath


def path_for_all(path: str, folder: str) -> str:
    """Return a path under which each container of an application finds what one of them has.

    Archives that Spark has sent are in the working folder of each container, whose own path no
    other container has.

    Args:
        path: absolute, in one container.
        folder: the working folder of this container.

    Example:
        >>> path_for_all("/local/container_2/env/bin/python", "/local/container_2")
        './env/bin/python'
        >>> path_for_all("/usr/bin/python3", "/local/container_2")
        '/usr/bin/python3'
    """
    if folder == os.sep or not PurePath(path).is_relative_to(folder):
        return path
    return f"./{PurePath(path).relative_to(folder)}"


def python_for_executors(environment: Mapping[str, str] = os.environ) -> str:
    """Return this program's interpreter, as executors find it if they have the same files."""
    if in_yarn(environment):
        return path_for_all(sys.executable, os.getcwd())
    return sys.executable


def in_yarn(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a container of YARN, as a driver does in cluster mode."""
    return "CONTAINER_ID" in environment


def folder_of_application(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return a folder of YARN for large files, which it removes when the application has ended.

    None: this process runs in no container, or none of its folders can be written.
    """
    folders = environment.get("LOCAL_DIRS", "").split(",") if in_yarn(environment) else []
    return next((Path(each) for each in folders if each and os.access(each, os.W_OK)), None)
