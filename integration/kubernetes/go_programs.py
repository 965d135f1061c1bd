"""Builds Kubernetes and Helm of Go modules, once: no registry of images or releases is asked."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "kubernetes"
VERSION = "1.34.4"
"""The newest minor version that starts on the first version of control groups by default."""
_ETCD = "go.etcd.io/etcd/server/v3"
_ETCD_VERSION = "v3.6.4"
"""Of the client in this Kubernetes. Debian's is too old for watches that begin with a list."""
_HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
_PROGRAMS = (
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kube-proxy",
    "kubelet",
    "kubectl",
)
_STAGED = (
    *("api", "apiextensions-apiserver", "apimachinery", "apiserver", "cli-runtime", "client-go"),
    *("cloud-provider", "cluster-bootstrap", "code-generator", "component-base"),
    *("component-helpers", "controller-manager", "cri-api", "cri-client", "csi-translation-lib"),
    *("dynamic-resource-allocation", "endpointslice", "externaljwt", "kms", "kube-aggregator"),
    *("kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet", "metrics"),
    *("mount-utils", "pod-security-admission", "sample-apiserver"),
)
"""Modules of the same release, which that of Kubernetes names without a version."""
_IDLE = ("nice", "-n", "10")
_PAUSE = """\
package main

import (
	"os"
	"os/signal"
	"syscall"
)

// Holds the network of a pod until it ends.
func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	<-ends
}
"""


def helm() -> Path:
    """Return Helm's program; it is built if there is none."""
    folder = CACHE / _HELM.replace("/", "-")
    if not (folder / "helm").exists():
        _go(CACHE, "install", _HELM, GOBIN=str(folder))
    return folder / "helm"


def kubernetes() -> Path:
    """Return the folder with the programs of Kubernetes; they are built if there are none."""
    folder = CACHE / f"kubernetes-{VERSION}"
    if all((folder / program).exists() for program in (*_PROGRAMS, "etcd")):
        return folder
    module = CACHE / "module"
    module.mkdir(parents=True, exist_ok=True)
    (module / "go.mod").write_text("module kubernetes-of-this-machine\n\ngo 1.24\n")
    packages = [f"k8s.io/kubernetes/cmd/{program}" for program in _PROGRAMS]
    imports = "\n".join(f'import _ "{package}"' for package in (*packages, _ETCD))
    (module / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}\n")
    versions = [f"-replace=k8s.io/{name}=k8s.io/{name}@v0.{VERSION[2:]}" for name in _STAGED]
    required = (f"k8s.io/kubernetes@v{VERSION}", f"{_ETCD}@{_ETCD_VERSION}")
    _go(module, "mod", "edit", *(f"-require={each}" for each in required), *versions)
    _go(module, "mod", "tidy", "-e")
    major, minor, _ = VERSION.split(".")
    values = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={values[key]}" for key in values)
    # Without the tables of debuggers, which are a third of each program.
    _go(module, "build", f"-ldflags=-s -w {flags}", "-o", f"{folder}/", *packages)
    _go(module, "build", "-ldflags=-s -w", "-o", str(folder / "etcd"), _ETCD)
    return folder


def pause() -> Path:
    """Return a program that waits for its end; it is built if there is none."""
    folder = CACHE / "pause"
    if not (folder / "pause").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.go").write_text(_PAUSE)
        _go(folder, "build", "-o", str(folder / "pause"), "main.go")
    return folder / "pause"


def _go(folder: Path, *arguments: str, **variables: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", **variables}
    subprocess.run([*_IDLE, "go", *arguments], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    print(kubernetes(), helm(), pause(), sep="\n")
