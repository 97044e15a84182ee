"""Services and slices joined, and which source of passwords is taken."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

from bgp import serving
from bgp.cluster.kubernetes import ServiceTable
from bgp.cluster.services import Endpoint
from bgp.peering.kubernetes_passwords import KubernetesPasswords, namespace
from bgp.peering.passwords import FilePasswords
from libcalico.kubernetes import objects, service_objects
from libcalico.kubernetes.names import Name

WEB = Name("ns", "web")


def web(**spec: object) -> service_objects.Service:
    status = service_objects.ServiceStatus(
        service_objects.LoadBalancer([service_objects.Ingress(ip="198.51.100.7")])
    )
    return service_objects.Service(spec=service_objects.ServiceSpec(**spec), status=status)  # type: ignore[arg-type]


def piece(
    *endpoints: tuple[str, bool | None], family: str = "IPv4"
) -> service_objects.EndpointSlice:
    return service_objects.EndpointSlice(
        metadata=objects.Meta(labels={service_objects.SERVICE_NAME: "web"}),
        addressType=family,
        endpoints=[
            service_objects.Endpoint(
                nodeName=node, conditions=service_objects.Conditions(ready=ready)
            )
            for node, ready in endpoints
        ],
    )


def test_services_and_their_slices() -> None:
    table = ServiceTable()
    assert table.slice(Name("ns", "s1"), piece(("n1", True), ("n2", False), ("n3", None))) == {WEB}
    assert table.view(WEB) is None
    spec = {"type": "LoadBalancer", "clusterIPs": ["10.96.0.7", "fd96::7"]}
    table.service(WEB, web(**spec, externalTrafficPolicy="Local", externalIPs=["192.0.2.7"]))
    found = table.view(WEB)
    assert found is not None
    assert found.cluster_ips == (ip_address("10.96.0.7"), ip_address("fd96::7"))
    assert found.external_ips == (ip_address("192.0.2.7"),)
    assert found.load_balancer_ips == (ip_address("198.51.100.7"),)
    assert (found.local, found.sliced) == (True, True)
    assert found.endpoints == {Endpoint("n1", 4), Endpoint("n3", 4)}
    table.slice(Name("ns", "s2"), piece(("n2", True), family="IPv6"))
    table.slice(Name("ns", "s1"), piece())
    found = table.view(WEB)
    assert found is not None
    assert found.endpoints == {Endpoint("n2", 6)}
    for name in ("s1", "s2"):
        assert table.slice(Name("ns", name), None) == {WEB}
    found = table.view(WEB)
    assert found is not None
    assert not found.sliced
    table.service(WEB, web(clusterIP="None"))
    found = table.view(WEB)
    assert found is not None
    assert found.cluster_ips == ()
    table.service(WEB, None)
    assert table.view(WEB) is None


def test_where_passwords_are_found(tmp_path: Path) -> None:
    assert isinstance(serving.passwords({}), FilePasswords)
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert isinstance(serving.passwords(pod), KubernetesPasswords)
    files = {**pod, "CALICO_BGP_PASSWORD_DIR": str(tmp_path)}
    assert isinstance(serving.passwords(files), FilePasswords)
    assert namespace({"NAMESPACE": "calico-system"}) == "calico-system"
    assert namespace({}, tmp_path / "none") == "kube-system"
    (tmp_path / "namespace").write_text("calico\n")
    assert namespace({}, tmp_path / "namespace") == "calico"
