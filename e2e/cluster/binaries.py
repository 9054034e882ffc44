"""The programs of the node, built from pinned Go modules into the cache and never built twice.

Kubernetes publishes no installable module: its go.mod asks for its staging modules at v0.0.0. `_module_file` therefore
writes a module of ours that replaces each of them by the release that belongs to the version
(https://github.com/kubernetes/kubernetes/tree/master/staging).
"""

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import golang, paths
from e2e.cluster.commands import run
from e2e.cluster.locks import exclusive
from e2e.cluster.progress import CLUSTER

KUBERNETES_VERSION = "1.34.4"
COREDNS_VERSION = "1.15.0"
HELM_VERSION = "4.3.1"


@dataclass(frozen=True)
class Program:
    """One program: the Go package it is built from and the module version that holds it."""

    name: str
    package: str
    module: str
    version: str
    linker_flags: str = ""

    @property
    def path(self) -> Path:
        """Where the built program lies in the cache."""
        return paths.cache() / "bin" / f"{self.module.split('/')[1]}-{self.version}" / self.name


def _kubernetes(name: str) -> Program:
    # Without the stamp the API server reports v0.0.0, which clients take for an ancient one.
    major, minor, _ = KUBERNETES_VERSION.split(".")
    stamp = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    return Program(name, f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes", KUBERNETES_VERSION, flags)


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        _kubernetes("kube-apiserver"),
        _kubernetes("kubelet"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kube-proxy"),
        _kubernetes("kubectl"),
        Program("coredns", "github.com/coredns/coredns", "github.com/coredns/coredns", COREDNS_VERSION),
        Program(
            *("helm", "helm.sh/helm/v4/cmd/helm", "helm.sh/helm/v4", HELM_VERSION),
            f"-X helm.sh/helm/v4/internal/version.version=v{HELM_VERSION}",
        ),
    )
}


def path(name: str) -> Path:
    """Return where the program of that name lies once `ensure` has run."""
    return PROGRAMS[name].path


def ensure(wanted: Iterable[str] = tuple(PROGRAMS)) -> None:
    """Build every wanted program that the cache lacks. All take about ten minutes on two cores.

    Raises:
        ClusterError: Go could not be installed, or a build failed.
    """
    programs = [PROGRAMS[name] for name in wanted]
    if not _missing(programs):
        return
    with exclusive(paths.cache() / "bin" / ".lock", waiting="waiting for another command that builds the programs"):
        missing = _missing(programs)
        go = golang.ensure()
        CLUSTER.say(f"{len(missing)} of {len(programs)} programs are to be built: {', '.join(p.name for p in missing)}")
        for program in missing:
            with CLUSTER.step(f"building {program.name} {program.version} from {program.module}"):
                _build(go, program)


def _missing(programs: list[Program]) -> list[Program]:
    return [program for program in programs if not program.path.exists()]


def _build(go: golang.Go, program: Program) -> None:
    program.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=program.path.parent) as folder:
        work = Path(folder)
        (work / "go.mod").write_text(_module_file(go, program))
        built = work / program.name
        flags = f"-s -w {program.linker_flags}".strip()
        run(
            [
                *("nice", "-n", "5", go.program, "build", "-mod=mod", "-trimpath"),
                *("-ldflags", flags, "-o", built, program.package),
            ],
            env=go.environment(),
            cwd=work,
        )
        # Renamed in one step: a build that is killed never leaves a half-written program behind.
        built.replace(program.path)


def _module_file(go: golang.Go, program: Program) -> str:
    lines = ["module build", f"go {go.language_version}", f"require {program.module} v{program.version}"]
    if program.module == "k8s.io/kubernetes":
        staged = f"v0.{program.version.split('.', 1)[1]}"
        described = run(
            [go.program, "mod", "download", "-json", f"{program.module}@v{program.version}"],
            env=go.environment(),
            cwd=Path("/"),
        )
        upstream = Path(json.loads(described)["GoMod"]).read_text()
        names = sorted(set(re.findall(r"^\s*(?:require )?(k8s\.io/[\w.-]+) v0\.0\.0(?=\s)", upstream, re.MULTILINE)))
        lines += [f"replace {name} => {name} {staged}" for name in names]
    return "\n".join(lines) + "\n"
