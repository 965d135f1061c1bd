"""Says what ``make kubernetes-test`` lacks on this machine, before anything is built.

It runs in the Python that makes the virtual environment, without any packages.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from integration.machine_needs import missing_room, print_missing

_MEMORY_MB = 8000
_DISK_MB = 20_000
_OLDEST_GO = (1, 24)
PLUGINS = Path("/usr/lib/cni")
_PACKAGES = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "iptables": "iptables",
    "nft": "nftables",
}
"""Programs, and the packages of Debian that have them."""


def missing() -> Iterator[str]:
    """Yield what is missing, each with what to do about it."""
    if not sys.platform.startswith("linux") or os.geteuid():
        yield "Linux, and root: it starts containers, and gives them a network"
        return
    if sys.version_info[:2] != (3, 11):
        yield "PYTHON=… of version 3.11, which is that of Debian 12 in the containers"
    packages = {package for program, package in _PACKAGES.items() if not shutil.which(program)}
    if not (PLUGINS / "bridge").exists():
        packages.add("containernetworking-plugins")
    if packages:
        yield f"packages of Debian: apt-get install {' '.join(sorted(packages))}"
    yield from _missing_go()
    yield from missing_room(_MEMORY_MB, _DISK_MB, ".")


def _missing_go() -> Iterator[str]:
    needed = "Go {}.{} or newer, which builds Kubernetes and Helm".format(*_OLDEST_GO)
    if shutil.which("go") is None:
        yield needed
        return
    asked = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)", asked.stdout)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_GO:
        yield f"{needed}: this is {asked.stdout.strip() or 'unknown'}"


if __name__ == "__main__":
    sys.exit(print_missing("kubernetes-test", missing()))
