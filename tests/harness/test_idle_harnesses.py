"""Idle SDK harnesses are removed, whatever the times are for which others are kept."""

import threading
from typing import Any

import pytest

from beam_spark_runner.harness.remote.sdk_harnesses import SdkHarnesses, _Entry, _Key
from beam_spark_runner.harness.remote.settings import HarnessSettings

SOON_S = 60.0


class Worker:
    def __init__(self) -> None:
        self.stopped = threading.Event()

    def stop(self, **_: Any) -> None:
        self.stopped.set()


def keep(harnesses: SdkHarnesses, cache_s: float) -> Worker:
    worker = Worker()
    settings = HarnessSettings(job_id="job", cache_s=cache_s)
    key = _Key(b"", "", "", str(cache_s), 0, "")
    harnesses._entries[key] = _Entry(worker, settings)  # type: ignore[arg-type]
    return worker


@pytest.mark.parametrize("longest_s", [1e15, 1e300, float("inf")])
def test_a_harness_that_is_kept_for_ever_keeps_no_other(longest_s: float) -> None:
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
    with harnesses._lock:
        harnesses._entries.clear()
        harnesses._wake.notify_all()
    removing.join(SOON_S)
    assert not removing.is_alive()
    assert not harnesses._expires


def test_another_thread_is_started_after_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    harnesses = SdkHarnesses()
    harnesses._expires = True

    def fail() -> None:
        raise OverflowError("a defect")

    monkeypatch.setattr(harnesses, "_expire_until_none_is_kept", fail)
    with pytest.raises(OverflowError):
        harnesses._expire()
    assert not harnesses._expires
