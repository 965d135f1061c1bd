"""A proxy that delays what passes it, in a separate process, as a distant server would."""

import asyncio
import contextlib
import multiprocessing
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection

_CHUNK_BYTES = 1 << 20


@contextlib.contextmanager
def delaying_proxy(port: int, round_trip_s: float) -> Iterator[int]:
    """Run a proxy of a port of this machine.

    Args:
        port: The port of the server.
        round_trip_s: By how much a reply is later, seconds; half of it in each direction. The
            rate of bytes is not limited.

    Yields:
        The port of the proxy.
    """
    forking = multiprocessing.get_context("fork")
    here, there = forking.Pipe()
    process = forking.Process(target=_serve, args=(port, round_trip_s / 2, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def _serve(port: int, delay_s: float, starter: Connection) -> None:
    asyncio.run(_serving(port, delay_s, starter))


async def _serving(port: int, delay_s: float, starter: Connection) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            _forward(reader, server_writer, delay_s), _forward(server_reader, writer, delay_s)
        )

    server = await asyncio.start_server(accept, "127.0.0.1")
    starter.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Write all that is read, each piece so much later."""
    clock = asyncio.get_running_loop().time
    waiting: deque[tuple[float, bytes]] = deque()
    has_come = asyncio.Event()

    async def write() -> None:
        while True:
            while not waiting:
                has_come.clear()
                await has_come.wait()
            due_s, data = waiting.popleft()
            await asyncio.sleep(max(0.0, due_s - clock()))
            if not data:
                writer.close()
                return
            writer.write(data)

    writing = asyncio.create_task(write())
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            waiting.append((clock() + delay_s, data))
            has_come.set()
    waiting.append((clock() + delay_s, b""))
    has_come.set()
    await writing
