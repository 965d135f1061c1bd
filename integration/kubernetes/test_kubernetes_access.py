"""A job server of the chart with TLS and a token, whose pods get them from Secrets."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from integration.kubernetes.kubectl import wait_for
from integration.kubernetes.releases import Release
from integration.kubernetes.restrictions_of_pods import check_pods
from integration.kubernetes.service_clients import count_words

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
TOKEN = "0123456789abcdef0123456789abcdef"


def test_clients_need_a_certificate_authority_and_a_token(
    release: Callable[[str], Release], tmp_path: Path
) -> None:
    made = release("access")
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    pair = {
        "tls.crt": b"".join(blob.bytes() for blob in server.cert_chain_pems),
        "tls.key": server.private_key_pem.bytes(),
    }
    made.kubectl.apply(secret("tls", pair), secret("token", {"token": TOKEN.encode()}))
    made.install(
        {
            "jobServer": {
                "advertisedHost": "localhost",
                "tls": {"secretName": "tls"},
                "token": {"secretName": "token"},
            },
            "executors": {"instances": 1},
        }
    )
    wait_for(made.kubectl, "job-server")
    ca, token = tmp_path / "ca.pem", tmp_path / "token"
    authority.cert_pem.write_to_path(ca)
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    count_words(made, f"--job_server_ca={ca}", f"--job_server_token_file={token}")
    check_pods(made.kubectl)
    made.remove()


def secret(name: str, content: dict[str, bytes]) -> dict[str, object]:
    """Return a Secret."""
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
