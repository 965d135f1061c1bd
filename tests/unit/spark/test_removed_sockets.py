"""The socket of PySpark's accumulators, when the program ends."""

import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM = """
    import os, sys
    from types import SimpleNamespace
    from pyspark import SparkContext
    from beam_spark_runner.spark import pyspark_internals

    def cannot(address):
        raise OSError("the JVM has ended")

    server = SimpleNamespace(server_address=sys.argv[1])
    SparkContext._active_spark_context = SimpleNamespace(_accumulatorServer=server)
    io = SimpleNamespace(File=cannot)
    pyspark_internals.jvm = lambda: SimpleNamespace(java=SimpleNamespace(io=io))
    pyspark_internals.have_socket_removed()
    if (child := os.fork()) == 0:
        sys.exit()
    os.waitpid(child, 0)
    print(os.path.exists(sys.argv[1]))
    """


def test_the_program_removes_it_and_a_forked_child_does_not(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    socket.touch()
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(socket)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("True\n", 0), ended.stderr
    assert not socket.exists()
