"""What a worker says when the JVM that it worked for has closed its socket."""

import socket

import pytest

from beam_spark_runner.spark.worker.daemon import quiet_once_spark_is_gone


def test_a_worker_whose_spark_is_gone_ends_in_silence() -> None:
    spark, workers = socket.socketpair()
    spark.close()

    def flushes(sock: socket.socket, authenticated: bool) -> int:
        sock.sendall(b"the rest")
        return 0

    with workers:
        assert quiet_once_spark_is_gone(flushes)(workers, True) == 1


def test_other_ends_of_workers_stay_what_they_are() -> None:
    def fails(sock: socket.socket, authenticated: bool) -> int:
        raise OSError("disk full")

    with socket.socket() as sock:
        assert quiet_once_spark_is_gone(lambda sock, authenticated: 7)(sock, True) == 7
        with pytest.raises(OSError, match="disk full"):
            quiet_once_spark_is_gone(fails)(sock, True)
