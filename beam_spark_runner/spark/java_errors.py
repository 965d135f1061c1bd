"""The texts of errors that Spark has raised in its JVM."""

import re

from py4j.protocol import Py4JError, Py4JJavaError

_RAISED_BY_PYTHON = re.compile(r"^[\w.]+(: .*)?$", re.MULTILINE)
_LAST_TASK = re.compile(r"most recent failure: Lost task .*?\): (?=.)")
_CLASS = re.compile(r"(?:[a-z]\w*\.)+[\w$]+(?:: |:?$)")
_NAME = re.compile(r"[\w$-]+(?:\.[\w$-]+)+")
"""Of another class, or of a host: such a message says little without the class of the exception."""
_STACK = re.compile(r"at [\w.$/<>]+\(|Caused by: |Driver stacktrace:|\.\.\. \d+ more")
# What the interpreter that an executor starts has written, by ``PythonWorkerFactory`` of Spark.
_NOT_STARTED = re.compile(r"Error from python worker:\n((?: {2}.*\n)+)PYTHONPATH was:")


def text_of_error(error: BaseException) -> str:
    """Return ``str(error)``.

    The text of a Java exception comes from the JVM. If that has ended meanwhile, as it does when
    Spark fails to start, the text is what Py4J knows without it.
    """
    if not isinstance(error, Py4JJavaError):
        return str(error)
    try:
        return str(error)
    except (Py4JError, OSError):
        return f"{error.errmsg}: Spark's JVM has ended"


def line_of(text: str) -> str:
    r"""Return the line of an error's text that says what has happened; empty: there is none.

    That is the exception of Python's that Spark reports, what an interpreter has written that does
    not start, or the message of the first Java exception. A message may begin with a line break.

    Example:
        >>> line_of("An error occurred.\n: java.io.IOException: \nno\n\tat b.C(D)")
        'no'
        >>> line_of(": java.lang.NullPointerException\n\tat b.C(D)")
        'java.lang.NullPointerException'
    """
    _, is_traceback, traceback = text.rpartition("Traceback (most recent call last):\n")
    if is_traceback:  # its last line; frames are indented, as are the JVM's after it
        raised = _RAISED_BY_PYTHON.search(traceback)
        if raised is not None:
            return raised[0]
    if written := _NOT_STARTED.search(text):
        lines = [line.strip() for line in written[1].splitlines() if line.strip()]
        return f"the executors' Python did not start: {lines[-1] if lines else 'it says nothing'}"
    if lost := _LAST_TASK.search(text):
        return _message(text[lost.end() :].splitlines())
    lines = [line.strip(" :\t") for line in text.splitlines()]
    # A Py4J error's first line only says that a call failed; the Java exception follows it.
    java = (at for at, line in enumerate(lines) if line.startswith(("java.", "org.apache.")))
    return _message(lines[next(java, 0) :])


def _message(lines: list[str]) -> str:
    """Return the first line of a Java exception's message, or its class if it has no message."""
    class_name = ""
    for line in map(str.strip, lines):
        if _STACK.match(line):
            break
        message = line if class_name else _CLASS.sub("", line, count=1).strip()
        if message:
            return line if _NAME.fullmatch(message) and not class_name else message
        class_name = class_name or line.strip(": ")
    return class_name
