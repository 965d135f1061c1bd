"""The texts of errors that Spark has raised in its JVM."""

from py4j.protocol import Py4JError, Py4JJavaError


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
