"""What a lack of the kernel is called: the programs' own words of iptables 1.8.9."""

from __future__ import annotations

import pytest

from linux.errors import CommandError
from linux.iptables.absence import with_cure

WARNING = "Warning: Extension {} not supported, missing kernel module?\n"


@pytest.mark.parametrize(
    ("command", "said", "named"),
    [
        (
            "iptables-legacy-restore",
            WARNING.format("rpfilter revision 0") + "iptables-restore: line 6 failed",
            "this kernel has no match or target rpfilter of iptables (modprobe -a ipt_rpfilter)",
        ),
        (
            "ip6tables-nft-restore",
            WARNING.format("set revision 0") + WARNING.format("set is") + "line 7 failed",
            "this kernel has no match or target set of ip6tables (modprobe -a ip6t_set)",
        ),
        (
            "iptables-nft-restore",
            WARNING.format("MARK revision 0") + WARNING.format("multiport is"),
            "no match or target MARK of iptables and no match or target multiport of iptables "
            "(modprobe -a ipt_MARK ipt_multiport)",
        ),
        (
            "iptables-legacy-restore",
            "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'raw'",
            "this kernel has no table raw of iptables (modprobe -a iptable_raw)",
        ),
        (
            "ip6tables-legacy-save",
            "ip6tables v1.8.9 (legacy): can't initialize ip6tables table `nat': Table does not "
            "exist (do you need to insmod?)",
            "this kernel has no table nat of ip6tables (modprobe -a ip6table_nat)",
        ),
    ],
)
def test_what_is_lacking_is_named_with_its_cure(command: str, said: str, named: str) -> None:
    told = with_cure(CommandError(command, 1, said))
    assert named in str(told)
    assert str(told).endswith(said.strip()), "what the program said follows"
    assert (told.command, told.status, told.errno) == (command, 1, 5)


@pytest.mark.parametrize("said", ["", "iptables-restore: line 7 failed", "Extension of a lock"])
def test_what_tells_of_no_lack_is_left_alone(said: str) -> None:
    error = CommandError("iptables-nft-restore", 1, said)
    assert with_cure(error) is error
