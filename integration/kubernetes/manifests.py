"""Writes the plain manifests of ``deploy/kubernetes``: what the chart makes of some values."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
_CHART = ROOT / "deploy" / "helm" / "beam-spark-runner"
VALUES: Mapping[str, Mapping[str, Any]] = {
    "job-server": {
        "jobServer": {
            "tls": {"secretName": "beam-tls"},
            "token": {"secretName": "beam-token"},
        },
    },
    "pipeline": {
        "jobServer": {"enabled": False},
        "pipeline": {
            "enabled": True,
            "image": "registry.example.com/orders:1.4",
            "command": ["python", "/opt/orders/pipeline.py"],
        },
        "storage": {"url": "s3://bucket/orders"},
        "envFrom": [{"secretRef": {"name": "orders-s3"}}],
        "serviceMonitor": {"enabled": True},
        "goHarnesses": {"enabled": True},
    },
}


def header(name: str) -> str:
    """Return the lines that a manifest begins with, by which one sees whether it is current."""
    digest = hashlib.sha256(yaml.safe_dump(VALUES[name]).encode())
    for path in sorted(_CHART.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(_CHART)).encode() + b"\0" + path.read_bytes())
    return (
        "# Made of deploy/helm/beam-spark-runner by `make kubernetes-manifests`.\n"
        f"# Chart and values: sha256 {digest.hexdigest()}\n"
    )


def text_of(name: str) -> str:
    """Return what the chart makes of the values of a manifest, by Helm."""
    # What is above is for tests, too, that start no containers.
    from integration.kubernetes.releases import render

    objects = render(VALUES[name], "--namespace=beam")
    objects = objects.replace("managed-by: Helm", "managed-by: kubectl")
    return header(name) + re.sub(r"^ +\n", "", objects, flags=re.MULTILINE)


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in VALUES:
        (FOLDER / f"{name}.yaml").write_text(text_of(name))


if __name__ == "__main__":
    main()
