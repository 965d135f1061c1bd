"""The end of a gRPC server."""

import logging
from typing import Any

_LOGGER = logging.getLogger(__name__)
_GRACE_S = 0.5  # for calls that are under way
_MOST_STOP_S = 5.0


def stop_serving(server: Any) -> None:
    """End a ``grpc.Server``: its port, and after a moment its calls.

    gRPC can lose the end of a status that it sends while it shuts down (seen with 1.85): it
    then takes the call for open, and never reports its end. Nobody waits for that.
    """
    if not server.stop(_GRACE_S).wait(_MOST_STOP_S):
        _LOGGER.info("gRPC has not reported the end of its server within %g s", _MOST_STOP_S)
