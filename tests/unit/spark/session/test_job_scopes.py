"""Nested scopes of Spark jobs."""

from types import SimpleNamespace

import pytest

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.handle import SessionHandle, _Scope


class ConnectClient:
    """Its tags are those of Spark Connect before 4.2, which refuses to remove an absent one."""

    def __init__(self) -> None:
        self.tags: set[str] = set()

    def addTag(self, tag: str) -> None:
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)


class Context:
    """A context whose JVM may be lost."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.properties: dict[str, str | None] = {}
        self.is_lost = False

    def _check(self) -> None:
        if self.is_lost:
            raise ConnectionRefusedError

    def getLocalProperty(self, name: str) -> str | None:
        self._check()
        return self.properties.get(name)

    def setJobDescription(self, text: str | None) -> None:
        self._check()
        self.properties["spark.job.description"] = text

    def addJobTag(self, tag: str) -> None:
        self._check()
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:
        self._check()
        self.tags.remove(tag)


def handle_of(spark: object, *, is_connect: bool) -> SessionHandle:
    handle = SessionHandle.__new__(SessionHandle)
    handle.spark, handle.is_connect, handle.pool = spark, is_connect, None
    handle._scope = _Scope()
    return handle


def test_the_outer_scope_of_a_connect_client_keeps_its_tag() -> None:
    client = ConnectClient()
    handle = handle_of(client, is_connect=True)
    with handle.job_scope("job", "outer"):
        with handle.job_scope("job", "inner"):
            assert client.tags == {"job"}
        assert client.tags == {"job"}
    assert client.tags == set()


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setattr(pyspark_internals, "is_stopped", lambda context: False)
    return Context()


def test_an_inner_scope_changes_only_the_description(context: Context) -> None:
    context.setJobDescription("the program's")
    handle = handle_of(SimpleNamespace(sparkContext=context), is_connect=False)
    with handle.job_scope("job", "outer"):
        with handle.job_scope("job", "inner"):
            assert (context.tags, context.properties) == (
                {"job"},
                {"spark.job.description": "inner"},
            )
        assert context.properties["spark.job.description"] == "outer"
        assert context.tags == {"job"}
    assert context.tags == set()
    assert context.properties["spark.job.description"] == "the program's"


def test_the_error_of_a_lost_spark_is_not_replaced(context: Context) -> None:
    handle = handle_of(SimpleNamespace(sparkContext=context), is_connect=False)

    def lose_spark() -> None:
        with handle.job_scope("job", "outer"):
            context.is_lost = True
            raise ValueError("Spark's JVM has ended")

    with pytest.raises(ValueError, match="has ended"):
        lose_spark()
