"""Idle SDK harnesses are removed, whatever the times are for which others are kept."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.core.errors import LostHarnessError
from beam_spark_runner.harness.remote import sdk_harnesses
from beam_spark_runner.harness.remote.sdk_harnesses import SdkHarnesses, _Entry, _Key
from beam_spark_runner.harness.remote.settings import HarnessSettings

SOON_S = 60.0


class Worker:
    def __init__(self) -> None:
        self.stopped = threading.Event()

    def stop(self, **_: Any) -> None:
        self.stopped.set()

    @property
    def connection(self) -> Any:
        return SimpleNamespace(error=LostHarnessError("lost") if self.stopped.is_set() else None)


def keep(
    harnesses: SdkHarnesses, cache_s: float, job_id: str = "job", *, has_siblings: bool = False
) -> Worker:
    worker = Worker()
    settings = HarnessSettings(job_id=job_id, cache_s=cache_s)
    key = _Key(b"", "", "", str(cache_s), 0, f"{job_id}{has_siblings}")
    harnesses._entries[key] = _Entry(worker, settings, has_siblings=has_siblings)  # type: ignore[arg-type]
    return worker


def end(harnesses: SdkHarnesses, removing: threading.Thread) -> None:
    with harnesses._lock:
        harnesses._entries.clear()
        harnesses._wake.notify_all()
    removing.join(SOON_S)
    assert not removing.is_alive()


@pytest.mark.parametrize("longest_s", [1e15, 1e300, float("inf")])
def test_a_harness_that_is_kept_forever_keeps_no_other(longest_s: float) -> None:
    harnesses = SdkHarnesses()
    forever = keep(harnesses, longest_s)
    removing = threading.Thread(target=harnesses._expire)
    removing.start()
    with harnesses._lock:
        idle = keep(harnesses, 0.01)
        harnesses._entries = dict(reversed(harnesses._entries.items()))
        harnesses._wake.notify_all()
    assert idle.stopped.wait(SOON_S)
    assert not forever.stopped.is_set()
    end(harnesses, removing)
    assert not harnesses._expires


def test_a_harness_whose_end_would_end_others_stays_until_its_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sdk_harnesses, "MAX_IDLE_S", 0.0)
    monkeypatch.setattr(sdk_harnesses, "MAX_OF_OTHER_JOBS", 0)
    harnesses = SdkHarnesses()
    java = keep(harnesses, 0.0, has_siblings=True)
    python = keep(harnesses, 0.0)
    removing = threading.Thread(target=harnesses._expire)
    removing.start()
    assert python.stopped.wait(SOON_S)
    with harnesses._lock:
        assert not harnesses._too_many("another job")
    assert harnesses.must_stay()
    assert harnesses.must_stay("job")
    assert not harnesses.must_stay("another job")
    assert not java.stopped.is_set()
    harnesses.end_job("job")
    assert java.stopped.is_set()
    assert not harnesses.must_stay()
    end(harnesses, removing)


def test_a_harness_is_idle_if_its_job_ends_while_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sdk_harnesses, "MAX_IDLE_S", 0.0)
    harnesses = SdkHarnesses()
    java = keep(harnesses, 0.0, has_siblings=True)
    (entry,) = harnesses._entries.values()
    entry.users = 1
    harnesses.end_job("job")
    assert not java.stopped.is_set()
    removing = threading.Thread(target=harnesses._expire)
    removing.start()
    harnesses.release(java)  # type: ignore[arg-type]
    assert java.stopped.wait(SOON_S)
    end(harnesses, removing)


def test_a_harness_that_is_lost_keeps_no_process() -> None:
    harnesses = SdkHarnesses()
    lost = keep(harnesses, 0.0, has_siblings=True)
    lost.stopped.set()
    assert not harnesses.must_stay()


def test_another_thread_is_started_after_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    harnesses = SdkHarnesses()
    harnesses._expires = True

    def fail() -> None:
        raise OverflowError("a defect")

    monkeypatch.setattr(harnesses, "_expire_until_none_is_kept", fail)
    with pytest.raises(OverflowError):
        harnesses._expire()
    assert not harnesses._expires
