"""Connections to the page: not too many of them, and none that says nothing."""

import asyncio
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MAX_CONNECTIONS = 256
"""Each takes a file descriptor of the program, which commits and sockets of Spark need."""
SILENT_FOR_S = 30.0


class PageProtocol(H11Protocol):
    """Closes a connection that sends no whole head of a request in time, or is one too many.

    uvicorn limits requests only once their head is there.
    """

    _silence: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._await_head()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._forget_silence()
        elif self._silence is None:
            self._await_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_silence()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._silence = self.loop.call_later(SILENT_FOR_S, self.transport.abort)

    def _forget_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
