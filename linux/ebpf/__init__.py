"""Small eBPF programs over raw bpf(2): written here, loaded, attached, and read from.

Public: `PacketWatch` of `linux.ebpf.packets`; `available` says what this kernel lacks.
"""
