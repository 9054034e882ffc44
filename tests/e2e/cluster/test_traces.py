"""What the node changes outside its own folders is given back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster import kernel, paths, traces


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "KERNEL_RECORD", tmp_path / "state" / "kernel.json")
    monkeypatch.setattr(paths, "TRACES_RECORD", tmp_path / "state" / "traces.json")
    monkeypatch.setattr(paths, "POD_LOGS", tmp_path / "pod-logs")
    return tmp_path


def test_kernel_settings_return_to_what_they_were(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_SYSCTL", machine / "sys")
    for name, value in {"net/ipv4/ip_forward": "0\n", "kernel/panic": "1\n"}.items():
        (machine / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / "sys" / name).write_text(value)
    kernel.remember_settings()
    assert (machine / "sys/net/ipv4/ip_forward").read_text() == "1"
    (machine / "sys/kernel/panic").write_text("10\n")
    kernel.remember_settings()
    kernel.restore_settings()
    assert (machine / "sys/net/ipv4/ip_forward").read_text() == "0"
    assert (machine / "sys/kernel/panic").read_text() == "1"


def test_only_links_to_our_logs_and_only_new_empty_folders_go(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, results = machine / "log" / "containers", machine / "cni" / "results"
    monkeypatch.setattr(traces, "_CONTAINER_LOGS", logs)
    monkeypatch.setattr(traces, "_CNI_RESULTS", results)
    monkeypatch.setattr(traces, "_SHIM_SOCKETS", machine / "sockets")
    monkeypatch.setattr(traces, "_DEVICE_PLUGIN_SOCKET", machine / "plugins" / "kubelet.sock")
    monkeypatch.setattr(traces, "_FOLDERS", (results, logs, machine / "plugins"))
    results.mkdir(parents=True)
    (results / "another-network-1-eth0").touch()
    traces.remember()
    logs.mkdir(parents=True)
    (logs / "ours.log").symlink_to(paths.POD_LOGS / "pod" / "0.log")
    (logs / "theirs.log").symlink_to(machine / "elsewhere" / "0.log")
    for name in (f"{paths.NETWORK_NAME}-1-eth0", "cni-loopback-1-lo", "cni-loopback-2-lo"):
        (results / name).touch()
    (machine / "plugins").mkdir()
    (machine / "plugins" / "kubelet.sock").touch()

    traces.remove()

    assert sorted(entry.name for entry in logs.iterdir()) == ["theirs.log"]
    assert sorted(entry.name for entry in results.iterdir()) == ["another-network-1-eth0", "cni-loopback-2-lo"]
    assert not (machine / "plugins").exists()
