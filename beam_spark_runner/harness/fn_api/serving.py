"""Stops a gRPC server."""

import logging
from concurrent.futures import Executor
from typing import Any

_LOGGER = logging.getLogger(__name__)
_GRACE_S = 0.5  # for running calls
_MAX_STOP_S = 5.0


def stop_serving(server: Any, threads: Executor) -> None:
    """Stop a ``grpc.Server``: close its port at once, and end its calls after a grace period.

    Its threads end as soon as they are idle. gRPC leaves that to the garbage collector.

    gRPC can lose the completion of a status that it sends while it shuts down (seen with 1.85):
    it then regards the call as open, and never reports its end. So the wait is limited.
    """
    if not server.stop(_GRACE_S).wait(_MAX_STOP_S):
        _LOGGER.info("gRPC has not reported the end of its server within %g s", _MAX_STOP_S)
    threads.shutdown(wait=False)
