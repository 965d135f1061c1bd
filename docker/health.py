"""The health checks of the containers: exit status 0, or the reason on stderr.

``health.py HOST:PORT`` connects to a port. ``health.py URL`` asks a server whether it is ready, and
shows what it says. ``health.py worker`` asks the Spark master whether the
Spark Worker of this container is alive.
"""

import json
import socket
import sys
import urllib.error
import urllib.request

_ANSWERS_WITHIN_S = 5.0
_MASTER = "http://spark-master:8080/json/"


def main(what: str) -> None:
    """Check once; ``what`` is HOST:PORT, a URL or ``worker``."""
    if what == "worker":
        _look_for_worker()
        return
    if what.startswith("http://"):
        try:
            urllib.request.urlopen(what, timeout=_ANSWERS_WITHIN_S).close()
        except urllib.error.HTTPError as error:
            sys.exit(error.read().decode())
        return
    host, _, port = what.rpartition(":")
    socket.create_connection((host, int(port)), _ANSWERS_WITHIN_S).close()


def _look_for_worker() -> None:
    """Exit with a message if the master has no living Spark Worker at this container's address."""
    own = socket.gethostbyname(socket.gethostname())
    with urllib.request.urlopen(_MASTER, timeout=_ANSWERS_WITHIN_S) as answer:
        workers = json.load(answer)["workers"]
    if not any(each["host"] == own and each["state"] == "ALIVE" for each in workers):
        sys.exit(f"the master knows no living worker at {own}")


if __name__ == "__main__":
    main(sys.argv[1])
