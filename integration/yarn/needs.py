"""Says what ``make yarn-test`` lacks on this machine, before anything is downloaded.

It runs in the Python that makes the virtual environment, without any packages.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from integration.machine_needs import missing_room, print_missing
from integration.yarn.users import can_run, container_user

_MEMORY_MB = 6000
_DISK_MB = 8000
_OLDEST_JAVA = 17
_IMPORTS = "import ensurepip, venv, ssl"


def missing() -> Iterator[str]:
    """Yield what is missing, each with what to do about it."""
    if not sys.platform.startswith("linux"):
        yield "Linux: the tests look for processes in /proc"
        return
    yield from _missing_java()
    if shutil.which("mvn") is None:
        yield "Maven (mvn), which brings Hadoop"
    if python_for_containers() is None:
        version = "{}.{}".format(*sys.version_info[:2])
        yield (
            f"a Python {version} with venv that the user of containers "
            f"(uid {container_user().uid}) can run, such as /usr/bin/python{version}; or another "
            "PYTHON=… of make, of a version for which there is one"
        )
    yield from missing_room(_MEMORY_MB, _DISK_MB, "/tmp")


def python_for_containers() -> str | None:
    """Return an interpreter of this one's minor version that containers can run; None: none."""
    name, user = "python{}.{}".format(*sys.version_info[:2]), container_user()
    folders = ["/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(os.pathsep)]
    # That of a virtual environment is a link to another one.
    found = (os.path.realpath(path) for path in (os.path.join(folder, name) for folder in folders))
    usable = (
        path
        for path in dict.fromkeys(found)
        if os.access(path, os.X_OK) and can_run([path, "-c", _IMPORTS], user)
    )
    return next(usable, None)


def _missing_java() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        yield f"Java {_OLDEST_JAVA} or newer"
        return
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', asked.stderr)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        yield f"Java {_OLDEST_JAVA} or newer: {java} is {found[1] if found else 'unknown'}"
    elif not can_run([os.path.realpath(java), "-version"], container_user()):
        yield f"a Java that the user of containers can run: {java} is none"


if __name__ == "__main__":
    sys.exit(print_missing("yarn-test", missing()))
