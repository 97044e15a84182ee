"""From the parameters to what the rules take: a pure translation.

Tested in tests/felix/config/test_config.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from felix.config import kinds
from felix.config.parameters import Config
from felix.rules.endpoints import Verdicts
from felix.rules.hosts import Failsafe, HostRules
from felix.rules.inputs import RuleSettings
from felix.rules.model import Accept, Action, Drop, Limit, Marks, Reject, Return
from felix.rules.nat import NatRules
from felix.rules.nflog_prefix import Tell

_ACTIONS: dict[str, Action] = {
    "ACCEPT": Accept(),
    "RETURN": Return(),
    "DROP": Drop(),
    "REJECT": Reject(),
}


def rule_settings(config: Config, version: int, *, tell: Tell = Tell.NOTHING) -> RuleSettings:
    """What the rules of one family depend on; `tell`: which packets are told of."""
    address = config.nat_outgoing_address
    return RuleSettings(
        prefixes=config.interface_prefix,
        marks=Marks.allocate(config.iptables_mark_mask),
        verdicts=Verdicts(
            allow=_ACTIONS[config.iptables_filter_allow_action],
            deny=_ACTIONS[config.iptables_filter_deny_action],
            vxlan_port=config.vxlan_port,
            vxlan_from_workloads=config.allow_vxlan_from_workloads,
            ipip_from_workloads=config.allow_ipip_from_workloads,
            log_prefix=config.log_prefix,
            log_limit=_log_limit(config),
            drop_invalid=not config.disable_conntrack_invalid_check,
            tell=tell,
        ),
        mangle_allow=_ACTIONS[config.iptables_mangle_allow_action],
        endpoint_to_host=_ACTIONS[config.default_endpoint_to_host_action],
        append=config.chain_insert_mode == "append",
        nat=NatRules(
            port_range=config.nat_port_range,
            address_v4=address if version == 4 and ":" not in address else "",
            address_v6=address if version == 6 and ":" in address else "",
            exclude_hosts=config.nat_outgoing_exclusions == "IPPoolsAndHostIPs",
            out_interface=config.nat_outgoing_interface_filter,
        ),
        hosts=HostRules(
            failsafe_in=_failsafes(config.failsafe_inbound_host_ports),
            failsafe_out=_failsafes(config.failsafe_outbound_host_ports),
        ),
        loop_prevention=_ACTIONS.get(config.service_loop_prevention.upper()),
    )


def _failsafes(entries: Iterable[kinds.Failsafe]) -> tuple[Failsafe, ...]:
    return tuple(
        Failsafe(protocol, port, ip_network(net) if net else None)
        for protocol, port, net in entries
    )


def _log_limit(config: Config) -> Limit | None:
    if config.log_action_rate_limit is None:
        return None
    rate, per = config.log_action_rate_limit
    return Limit(rate, per, config.log_action_rate_limit_burst)
