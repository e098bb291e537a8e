"""A real node: containerd and a kubelet, in their own namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster import credentials
from tests.cluster.api import is_true
from tests.cluster.control_plane import require_program
from tests.cluster.image import Config, write_archive
from tests.tools import require_tool
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.control_plane import ControlPlane
    from tests.cluster.namespaces import Namespaces

__all__ = ["Node", "require_node_tools"]

_PLUGINS = Path("/usr/lib/cni")
_PAUSE = "carpool.test/pause:1"
_CONTAINERD = """\
version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
oom_score = -1
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{folder}/registries"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def require_node_tools() -> None:
    """Skip the test, with the reason, if no node can be started."""
    for name in ("kube", "pause"):
        require_program(name)
    for tool in ("containerd", "ctr", "runc", "ip", "mount", "nsenter", "unshare"):
        require_tool(tool)
    if not (_PLUGINS / "bridge").exists():
        pytest.skip(f"{_PLUGINS} has no network plugins (Debian: containernetworking-plugins)")
    if os.geteuid() != 0:
        pytest.skip("only root can start a node")
    if subprocess.run(("unshare", "--net", "--mount", "true"), check=False).returncode:
        pytest.skip("a node cannot be started without a network and mounts of its own")


class Node:
    """The real node of a control plane."""

    def __init__(self, namespaces: Namespaces, plane: ControlPlane) -> None:
        self._namespaces = namespaces
        self._plane = plane
        self._work = namespaces.workspace
        self._socket = self._work.folder / "containerd.sock"

    def start(self) -> None:
        """Start the node, and wait until it is ready for pods."""
        self._start_containerd()
        self.load_image(self._pause_image())
        self._start_kubelet()
        path = f"/api/v1/nodes/{credentials.NODE}"

        def ready() -> bool:
            self._work.check()
            return self._plane.api.exists(path) and is_true(self._plane.api.get(path), "Ready")

        wait_until(ready, what="the node")

    def load_image(self, archive: Path) -> None:
        """Import the images of an archive, so that no registry is needed for them."""
        self._ctr("images", "import", str(archive))

    def allow_registry(self, address: str) -> None:
        """Let images be pulled from a registry over plain HTTP."""
        folder = self._work.folder / "registries" / address
        folder.mkdir(parents=True)
        (folder / "hosts.toml").write_text(f'[host."http://{address}"]\n')

    @contextmanager
    def services(self) -> Iterator[None]:
        """Route the addresses of Services to their pods, and the API server's Service to it."""
        folder, plane = self._work.folder, self._plane
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clientConnection": {"kubeconfig": str(plane.folder / "proxy.conf")},
            "hostnameOverride": credentials.NODE,
            "conntrack": {"maxPerCore": 0, "min": 0},
            # Pods share a bridge: the answer of one to another must come by the way of the call.
            "iptables": {"masqueradeAll": True, "localhostNodePorts": False},
        }
        (folder / "proxy.yaml").write_text(json.dumps(config))
        with plane.published():
            self._work.start(
                *("kube-proxy", require_program("kube"), "kube-proxy"),
                f"--config={folder / 'proxy.yaml'}",
            )
            try:
                yield
            finally:
                self._work.stop("kube-proxy")  # a changed configuration would end it

    def _ctr(self, *words: str) -> str:
        return self._work.run("ctr", "--address", str(self._socket), "-n", "k8s.io", *words)

    def _start_containerd(self) -> None:
        folder = self._work.folder
        (folder / "cni").mkdir()
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(self._network()))
        config = folder / "containerd.toml"
        config.write_text(
            _CONTAINERD.format(folder=folder, socket=self._socket, pause=_PAUSE, plugins=_PLUGINS)
        )
        self._work.start("containerd", "containerd", "--config", str(config))

        def answers() -> bool:
            self._work.check()
            return self._socket.exists()

        wait_until(answers, what="containerd")
        self._ctr("version")

    def _network(self) -> dict[str, object]:
        start, subnet = self._namespaces.pods
        addresses = {
            "type": "host-local",
            "dataDir": str(self._work.folder / "cni-addresses"),
            "ranges": [[{"subnet": subnet, "rangeStart": start}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False}
        return {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {**bridge, "ipam": addresses},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _pause_image(self) -> Path:
        folder, archive = self._work.folder / "pause", self._work.folder / "pause.tar"
        folder.mkdir()
        shutil.copy(require_program("pause"), folder / "pause")
        write_archive(archive, _PAUSE, [folder], Config(entrypoint=("/pause",)))
        return archive

    def _start_kubelet(self) -> None:
        folder, plane = self._work.folder, self._plane
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._namespaces.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(plane.folder / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._work.name}",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "resolvConf": "",
            "clusterDNS": [self._namespaces.host],  # where `dns` listens, if a test has it
            "clusterDomain": "cluster.local",
            "evictionHard": {"nodefs.available": "1%", "memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "serializeImagePulls": False,
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
            "volumePluginDir": str(folder / "kubelet-plugins"),
        }
        (folder / "kubelet.yaml").write_text(json.dumps(config))
        self._work.start(
            *("kubelet", require_program("kube"), "kubelet"),
            f"--config={folder / 'kubelet.yaml'}",
            f"--kubeconfig={plane.folder / 'node.conf'}",
            f"--hostname-override={credentials.NODE}",
            f"--node-ip={self._namespaces.address}",
        )
