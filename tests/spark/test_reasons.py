"""The one line that people read, out of the pages that Spark says."""

import pytest
from py4j.protocol import Py4JNetworkError

from beam_spark_runner.spark.driver.spark_errors import machines_were_lost, reason_of

JOB = (
    "An error occurred while calling o144.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 "
    "failed 1 times, most recent failure: Lost task 0.0 in stage 2.0 (TID 3) (localhost executor "
    "driver): {}\n"
    "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1136)\n"
    "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    "Caused by: java.io.EOFException\n\t... 24 more\n\nDriver stacktrace:\n"
    "\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:4568)\n"
    "\tat scala.Option.getOrElse(Option.scala:201)\n"
)
PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1247, in main
    func, profiler, deserializer, serializer = read_udfs(pickleSer, infile, eval_type)
                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ModuleNotFoundError: No module named 'pyarrow'
"""
OTHER_PYTHON = (
    "Spark's workers do not run the Python that has Beam and this runner; "
    "set PYSPARK_PYTHON to that Python (ModuleNotFoundError: No module named 'pyarrow')"
)
NOT_STARTED = """org.apache.spark.SparkException: \nError from python worker:
  some warning
  no Python of this executor is among: ./py/bin/python
PYTHONPATH was:
  /spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number"""
NO_PYTHON = (
    "the executors' Python did not start: no Python of this executor is among: ./py/bin/python"
)
CHAINED = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "a.py", line 1, in one
    raise KeyError("a")
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2, in two
    raise OSError("the second")
OSError: the second
"""
CRASH = """Python worker exited unexpectedly (crashed): Fatal Python error: Segmentation fault

Thread 0x00007f21f8e2d740 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f21e77fe6c0 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "segv.py", line 8 in <lambda>

Thread 0x00007f21f8e2d741 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Extension modules: numpy._core._multiarray_umath, pyarrow.lib (total: 2)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(PYTHON, OTHER_PYTHON, id="traceback"),
        pytest.param(JOB.format(PYTHON), OTHER_PYTHON, id="in a task"),
        pytest.param(JOB.format(CHAINED), "OSError: the second", id="chained"),
        pytest.param(CHAINED, "OSError: the second", id="of a Connect server"),
        pytest.param(
            JOB.format("java.io.IOException: No space left on device"),
            "a disk is full: Spark's local directory, or the temp folder (No space left on device)",
            id="disk",
        ),
        pytest.param(
            JOB.format(
                "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
            ),
            "user code, or a library it calls, ended the Python worker (os._exit, a crash, "
            "or the system's out-of-memory killer)",
            id="exit",
        ),
        pytest.param(
            JOB.format(CRASH),
            "the Python worker crashed: Fatal Python error: Segmentation fault\n"
            "Current thread 0x00007f21e77fe6c0 (most recent call first):\n"
            '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
            '  File "segv.py", line 8 in <lambda>',
            id="crash",
        ),
        pytest.param(
            "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: words\n",
            "words",
            id="py4j",
        ),
        pytest.param(
            "An error occurred while calling o1.x.\n: java.io.IOException: \n  words\n\tat a.B(C)",
            "words",
            id="after a line break",
        ),
        pytest.param(
            JOB.format("org.apache.spark.SparkException:\n\n  words"), "words", id="two line breaks"
        ),
        pytest.param(
            JOB.format("java.lang.NullPointerException"),
            "java.lang.NullPointerException",
            id="a class without words",
        ),
        pytest.param(
            ": java.net.UnknownHostException: namenode.example.com\n\tat a.B(C)",
            "java.net.UnknownHostException: namenode.example.com",
            id="only a name",
        ),
        pytest.param(JOB.format(NOT_STARTED), NO_PYTHON, id="an interpreter that does not start"),
        pytest.param(f"(x) {NOT_STARTED}", NO_PYTHON, id="such a one, on Connect"),
        pytest.param(
            "An error occurred while calling o77.collectToPython.\n"
            ': java.lang.NullPointerException: Cannot invoke "DAGScheduler.cleanupQueryJobs(long)" '
            'because the return value of "org.apache.spark.SparkContext.dagScheduler()" is null\n',
            'Spark was stopped (Cannot invoke "DAGScheduler.cleanupQueryJobs(long)" because the '
            'return value of "org.apache.spark.SparkContext.dagScheduler()" is null)',
            id="stopped",
        ),
        pytest.param("[CODE] words of Spark's own\nmore", "[CODE] words of Spark's own", id="own"),
        pytest.param("", "ValueError", id="no words"),
    ],
)
def test_reason(text: str, reason: str) -> None:
    assert reason_of(ValueError(text)) == reason
    assert not machines_were_lost(ValueError(text))


@pytest.mark.parametrize(
    "error",
    [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "refused")],
)
def test_a_jvm_that_has_ended(error: Exception) -> None:
    assert reason_of(error).startswith("Spark's JVM has ended, or does not answer (")
    assert not machines_were_lost(error)
