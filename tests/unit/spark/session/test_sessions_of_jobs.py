"""Sessions of Spark Connect: of the program, of a job server, and of each job."""

from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.core.errors import OptionsError, SparkSetupError
from beam_spark_runner.spark.session import open_session as module
from beam_spark_runner.spark.session import own_spark
from beam_spark_runner.spark.session.open_session import open_session
from beam_spark_runner.spark.session.own_spark import OwnSpark

_CONFIG: Any = SimpleNamespace(
    spark_master_url=None, spark_conf=(), job_name=None, session_idle_s=600.0
)


class _Conf:
    def __init__(self) -> None:
        self.values = {"spark.sql.adaptive.enabled": "true"}
        self.asked: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.append(key)
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def unset(self, key: str) -> None:
        self.values.pop(key, None)


class _Remote:
    """A session of Spark Connect."""

    version = "4.3.0"
    is_stopped = False

    def __init__(self, log: list[str], name: str = "first") -> None:
        self.name, self._log = name, log
        self.conf = _Conf()
        builder = SimpleNamespace(endpoint="a:15002", host="a", session_id=None)
        self.client = SimpleNamespace(
            _builder=builder,
            release_session=lambda: log.append(f"release {name}"),
            close=lambda: log.append(f"close {name}"),
        )

    def range(self, *_: int) -> None: ...

    def cloneSession(self) -> "_Remote":
        made = sum(each.startswith("clone") for each in self._log)
        self._log.append(f"clone {made}")
        return _Remote(self._log, f"clone {made}")

    def stop(self) -> None:
        self._log.append(f"stop {self.name}")


_Remote.__module__ = "pyspark.sql.connect.session"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(own_spark, "_own", None)
    return []


def test_the_session_of_each_job_of_a_server_is_released(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_server = _Remote(log)
    own = OwnSpark(of_server, None, {}, lambda own: None)
    own.begin_use()
    monkeypatch.setattr(own_spark, "_own", own)
    monkeypatch.setattr(module, "_existing_session", lambda: of_server)
    for _ in range(2):
        open_session(_CONFIG).close()
    assert log == [
        *("clone 0", "release clone 0", "close clone 0"),
        *("clone 1", "release clone 1", "close clone 1"),
    ]


def test_the_session_of_a_job_that_cannot_begin_is_released(log: list[str]) -> None:
    users: Any = _Remote(log)
    users.cloneSession = lambda: _TooOld(log, "clone")
    with pytest.raises(Exception, match=r"this is Spark 2\.4"):
        open_session(_CONFIG, users)
    assert log == ["release clone", "close clone"]


class _TooOld(_Remote):
    version = "2.4.0"


_TooOld.__module__ = _Remote.__module__


def test_a_session_of_the_user_is_left_as_it_was(log: list[str]) -> None:
    users: Any = _Remote(log)

    def cannot() -> None:
        raise NotImplementedError

    users.cloneSession = cannot
    users.client._builder.session_id = "given"  # so that no other one can be had
    before = dict(users.conf.values)
    session = open_session(_CONFIG, users)
    assert users.conf.values != before
    with pytest.raises(SparkSetupError, match="another pipeline runs in this SparkSession"):
        open_session(_CONFIG, users)  # whose end would change the settings of the first one
    session.close()
    assert users.conf.values == before
    open_session(_CONFIG, users).close()
    assert users.conf.values == before
    assert log == []


def test_settings_are_asked_for_once_and_those_that_fit_are_left(log: list[str]) -> None:
    users: Any = _Remote(log)
    clone: Any = _Remote(log)
    users.cloneSession = lambda: clone
    clone.conf.values["spark.sql.unionOutputPartitioning"] = "true"
    clone.conf.set = lambda key, value: log.append(f"{key}={value}")
    open_session(_CONFIG, users)
    assert log == ["spark.sql.adaptive.enabled=false"]  # the only one that is known, and differs
    settings = [each for each in clone.conf.asked if each.startswith("spark.sql.")]
    assert len(settings) == len({*settings})


def test_what_a_job_sets_later_is_restored_where_nothing_had_to_be_set(log: list[str]) -> None:
    users: Any = _Remote(log)

    def cannot() -> None:
        raise NotImplementedError

    users.cloneSession = cannot
    users.client._builder.session_id = "given"  # so that no other one can be had
    users.conf.values["spark.sql.adaptive.enabled"] = "false"
    before = dict(users.conf.values)
    with open_session(_CONFIG, users) as session:
        assert users.conf.values == before
        session.set_conf("spark.sql.parquet.compression.codec", "zstd")
    assert users.conf.values == before


def test_tokens_stay_secret(log: list[str]) -> None:
    url = "sc://b:15002/;token=SECRET"
    config: Any = SimpleNamespace(**{**vars(_CONFIG), "spark_master_url": url})
    with pytest.raises(OptionsError, match="sc://b:15002 is given") as raised:
        open_session(config, _Remote(log))
    assert "SECRET" not in str(raised.value)


def test_something_else_than_a_session_is_an_error() -> None:
    with pytest.raises(SparkSetupError, match="a SparkSession was expected, not str"):
        open_session(_CONFIG, "local[2]")
