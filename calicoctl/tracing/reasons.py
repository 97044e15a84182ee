"""The kernel's words for dropped packets, in the words of operators.

Source: https://github.com/torvalds/linux/blob/master/include/net/dropreason-core.h. Only those
that a forwarded connection may meet.
Tested in tests/calicoctl/test_tracing_cause.py.
"""

from __future__ import annotations

REASONS: dict[str, tuple[str, str, str]] = {
    "IP_RPFILTER": (
        "reverse-path", "the reverse path filter drops it", "make both ways alike, or loosen it"),
    "NO_SOCKET": ("closed-port", "no socket listens for it", "start the server"),
    "SOCKET_FILTER": ("socket", "a filter of the socket refuses it", ""),
    "SOCKET_RCVBUFF": ("socket", "the receive buffer of the socket is full", "read faster"),
    "SOCKET_BACKLOG": ("socket", "the backlog of the socket is full", "read faster"),
    "PKT_TOO_BIG": ("mtu", "it is larger than the next link takes", "give links one MTU"),
    "PKT_TOO_SMALL": ("malformed", "it is cut short", ""),
    "IP_INNOROUTES": ("no-route", "no route leads on", "ip route get, on that node"),
    "IP_OUTNOROUTES": ("no-route", "no route leads out", "ip route get, on that node"),
    "IP_INADDRERRORS": ("no-route", "the kernel may not send it on there", "ip route get"),
    "IP_INVALID_SOURCE": ("reverse-path", "its source may not come from there", ""),
    "IP_INVALID_DEST": ("no-route", "its destination may not be sent to", ""),
    "IP_LOCALNET": ("reverse-path", "it has an address of 127.0.0.0/8 on a wire", ""),
    "IP_LOCAL_SOURCE": ("reverse-path", "its source is an address of the node itself", ""),
    "NEIGH_FAILED": ("next-hop", "no host answers for the next hop", "see the next hop"),
    "NEIGH_CREATEFAIL": ("next-hop", "the table of neighbours is full", "raise gc_thresh3"),
    "NEIGH_QUEUEFULL": ("next-hop", "too many packets wait for the next hop", "see the next hop"),
    "NEIGH_DEAD": ("next-hop", "the entry of the next hop went meanwhile", "see the next hop"),
    "NEIGH_HH_FILLFAIL": ("next-hop", "the next hop's address cannot be written", ""),
    "DEV_READY": ("interface-down", "the device is not up", "ip link set DEVICE up"),
    "DEV_HDR": ("interface-down", "the device has no header for it", ""),
    "FULL_RING": ("overload", "the ring of the device is full", ""),
    "CPU_BACKLOG": ("overload", "the processor's backlog is full", "raise netdev_max_backlog"),
    "QDISC_DROP": ("overload", "a queueing discipline drops it", "tc -s qdisc"),
    "OTHERHOST": ("wrong-neighbour", "it is addressed to another host's MAC", "ip neigh"),
    "UNICAST_IN_L2_MULTICAST": ("wrong-neighbour", "its MAC is one of many", "ip neigh"),
    "IP_CSUM": ("malformed", "its header's checksum is wrong", "see checksum offload"),
    "TCP_CSUM": ("malformed", "its TCP checksum is wrong", "see checksum offload"),
    "UDP_CSUM": ("malformed", "its UDP checksum is wrong", "see checksum offload"),
    "TCP_MD5NOTFOUND": ("socket", "the socket wants a TCP-MD5 password", ""),
    "TCP_LISTEN_OVERFLOW": ("backlog", "the queue of the listening socket is full", ""),
    "TCP_MINTTL": ("ttl", "its time to live is less than the socket wants", ""),
    "XFRM_POLICY": ("ipsec", "IPsec's policy refuses it", "ip xfrm policy"),
    "BPF_CGROUP_EGRESS": ("bpf", "a BPF program of a control group drops it", ""),
    "TC_INGRESS": ("bpf", "a filter of tc drops it", "tc filter show"),
    "TC_EGRESS": ("bpf", "a filter of tc drops it", "tc filter show"),
    "XDP": ("bpf", "an XDP program drops it", "ip link"),
    "VXLAN_VNI_NOT_FOUND": ("tunnel", "no VXLAN device has this number", "see vxlanVNI"),
    "VXLAN_INVALID_HDR": ("tunnel", "its VXLAN header is wrong", ""),
    "VXLAN_ENTRY_EXISTS": ("tunnel", "its VXLAN sender is not the one known", "bridge fdb"),
    "TUNNEL_TXINFO": ("tunnel", "the tunnel does not know where to send it", "bridge fdb"),
    "IP_TUNNEL_ECN": ("tunnel", "the tunnel's header contradicts its inside", ""),
}  # fmt: skip
"""name of the cause, what the kernel says, what to do; by the kernel's reason."""

FUNCTIONS: dict[str, tuple[str, str, str]] = {
    "ip_rt_bug": ("no-route", "the kernel's routes contradict each other", ""),
    "ip_error": ("no-route", "the kernel refuses to send it on", "ip route get, on that node"),
    "dst_discard": ("blackhole", "a blackhole route takes it", "ip route get, on that node"),
    "dst_discard_out": ("blackhole", "a blackhole route takes it", "ip route get"),
    "ip_forward": ("ttl", "the kernel does not forward it", ""),
    "arp_error_report": ("next-hop", "no host answers for the next hop", "see the next hop"),
    "ip6_pkt_drop": ("no-route", "the kernel has no way on", "ip route get, on that node"),
}
"""The same by the function that dropped it, where the reason says nothing."""
