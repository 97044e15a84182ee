"""The settings of workloads' interfaces, with the real kernel."""

from __future__ import annotations

from felix.config.parameters import Config
from felix.dataplane.devices.interfaces import Interfaces
from felix.dataplane.devices.work import LinkWork
from linux import links
from linux.netlink import Socket
from tests.felix.dataplane.test_dataplane_parts import BOTH, endpoint
from tests.felix.dataplane.test_mtu import seen
from tests.support.netns import network_namespace


def test_a_link_that_leaves_before_it_is_set_up_is_no_failure() -> None:
    with network_namespace("settings") as space, space.entered(), Socket() as sock:
        veth = links.create_veth(
            "cali1", mac=None, mtu=1500, peer_name="far", peer_mac=None, peer_netns_fd=None
        )
        index = links.made(sock, veth, "cali1").index
        view = seen(sock)
        assert view.links[index].inet6("forwarding") == 0
        sock.request(links.delete(index))
        work = LinkWork(sock, view, Config(), endpoints=[endpoint("fd65::1/128")], families=BOTH)
        interfaces = Interfaces()
        interfaces.commit(work)
        assert interfaces.failures == {}
