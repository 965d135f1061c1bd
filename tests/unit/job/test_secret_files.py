"""Files with tokens and private keys that others can read or change are refused."""

import os
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.access import read_token
from beam_spark_runner.job.secret_files import check_owner_and_mode, read_secret

USER, OTHER, ROOT = 1000, 1001, 0
TOKEN = "a-token-of-enough-characters"


@pytest.fixture(autouse=True)
def a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: USER)


@pytest.mark.parametrize(
    ("owner", "mode"),
    [
        (USER, 0o600),
        (USER, 0o400),
        (ROOT, 0o640),  # a Secret of Kubernetes with fsGroup
        (ROOT, 0o440),
        (ROOT, 0o600),
    ],
)
def test_files_that_only_their_owner_can_access(owner: int, mode: int) -> None:
    check_owner_and_mode("client_token_file", "/token", owner, mode)


@pytest.mark.parametrize(
    ("owner", "mode", "remedy"),
    [
        (USER, 0o644, "chmod 600 /token"),
        (USER, 0o640, "chmod 600 /token"),
        (USER, 0o604, "chmod 600 /token"),
        (USER, 0o620, "chmod 600 /token"),
        (ROOT, 0o644, "chmod 640 /token"),
        (ROOT, 0o660, "chmod 640 /token"),
        (OTHER, 0o600, rf"uid {OTHER}.*chown {USER}"),
    ],
)
def test_files_that_others_can_access(owner: int, mode: int, remedy: str) -> None:
    with pytest.raises(OptionsError, match=rf"^--client_token_file: .*/token.*{remedy}"):
        check_owner_and_mode("client_token_file", "/token", owner, mode)


def test_root_s_own_file_must_be_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ROOT)
    with pytest.raises(OptionsError, match="chmod 600 /token"):
        check_owner_and_mode("client_token_file", "/token", ROOT, 0o644)


def test_a_token_is_read_from_such_a_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "token", tmp_path / "link"
    file.write_text(TOKEN)
    link.symlink_to(file)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid)
    file.chmod(0o600)
    for each in (file, link):
        assert read_token("client_token_file", str(each)) == TOKEN
        assert read_secret("tls_key", str(each)) == TOKEN.encode()
    file.chmod(0o644)
    for each in (file, link):
        with pytest.raises(OptionsError, match=f"chmod 6.0 {each}"):
            read_token("job_server_token_file", str(each))
