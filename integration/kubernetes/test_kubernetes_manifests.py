"""The plain manifests are what Helm makes, and an API server accepts them."""

import pytest
import yaml  # type: ignore[import-untyped]

from integration.kubernetes.manifests import FOLDER, VALUES, text_of
from integration.kubernetes.pod_node import Node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
OF_OTHERS = {"ServiceMonitor"}  # of the Prometheus Operator, which is not there


@pytest.mark.parametrize("name", VALUES)
def test_the_api_server_accepts_them(name: str, node: Node) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert text == text_of(name)
    objects = [each for each in yaml.safe_load_all(text) if each["kind"] not in OF_OTHERS]
    node.kubectl.run("create", "namespace", f"dry-{name}")
    there = yaml.safe_dump_all(objects).replace("namespace: beam", f"namespace: dry-{name}")
    node.kubectl.within(f"dry-{name}").run(
        "apply", "--dry-run=server", "--validate=strict", "--filename=-", content=there
    )
    node.kubectl.run("delete", "namespace", f"dry-{name}")
