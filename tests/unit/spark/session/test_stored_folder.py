"""Storage with a URL that Spark reaches, and the client does not."""

from typing import Any

import pytest

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session import stored_folder
from beam_spark_runner.storage.object_folder import ObjectFolder

URL = "s3a://box/tmp"


@pytest.mark.parametrize("is_connect", [True, False], ids=["Connect", "classic"])
def test_without_access_the_reason_is_returned(
    monkeypatch: pytest.MonkeyPatch, is_connect: bool
) -> None:
    """On Connect the probe cannot be deleted either: that is no error of the pipeline's."""
    deleted: list[str] = []

    def fail(*_: object) -> None:
        raise OSError("no credentials")

    class Session:
        """Stands for a Spark that writes and reads there."""

        spark: Any = None

        def application_id(self) -> str:
            return f"application of {is_connect}"

    session: Any = Session()
    session.is_connect = is_connect
    monkeypatch.setattr(stored_folder, "_check_spark", lambda *_: None)
    monkeypatch.setattr(ObjectFolder, "create", fail)
    monkeypatch.setattr(ObjectFolder, "remove", fail)
    monkeypatch.setattr(pyspark_internals, "delete_path", lambda _, url: deleted.append(url))
    reason = stored_folder.check_stored_folder(session, ObjectFolder(URL), URL)
    assert reason == "on this machine: OSError: no credentials"
    assert len(deleted) == (not is_connect)
