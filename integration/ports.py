"""Ports of this machine for servers that cannot choose their own."""

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Return as many ports of the loopback device as are free now, each once."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
