"""What a node's programs are told: containerd, kubelet and kube-proxy, of both versions."""

from __future__ import annotations

from typing import Any

from tests.k8s.releases import Release

SOCKET = "unix:///run/containerd/containerd.sock"
NET_DIR, BIN_DIR = "/etc/cni/net.d", "/opt/cni/bin"
RUNTIME = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri",
]
[metrics]
  address = "127.0.0.1:1338"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def kubelet(release: Release, cgroup: str) -> dict[str, Any]:
    """KubeletConfiguration; `cgroup` is the node's own root of control groups."""
    newer = {"failCgroupV1": False, "containerRuntimeEndpoint": SOCKET}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        # A full node is 110 pods of the tests, beside ours.
        "maxPods": 150,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "nodeStatusUpdateFrequency": "1s",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi"},
        **({} if release.old else newer),
    }


def kubelet_flags(release: Release, plugins: str) -> list[str]:
    """What 1.20 was told by flags; those of CNI were gone with dockershim, in 1.24.

    1.20 takes them with any runtime, and with containerd only containerd's folders count.
    """
    if not release.old:
        return []
    return [
        "--container-runtime=remote",
        f"--container-runtime-endpoint={SOCKET}",
        "--network-plugin=cni",
        f"--cni-conf-dir={NET_DIR}",
        f"--cni-bin-dir={plugins}",
    ]


def proxy(mode: str, name: str, kubeconfig: str, pods: str) -> dict[str, Any]:
    """KubeProxyConfiguration. The kernel's own limits stay as they are."""
    conntrack = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "clusterCIDR": pods,
        "hostnameOverride": name,
        "clientConnection": {"kubeconfig": kubeconfig},
        "conntrack": {**conntrack, "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
