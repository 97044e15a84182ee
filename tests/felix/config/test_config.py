"""Parameters: one table, Calico's precedence, problems named and never fatal."""

from __future__ import annotations

from typing import Any

import pytest

from felix.config.parameters import PARAMETERS, Config
from felix.config.resolve import Resolved, resolve
from felix.dataplane.rules.settings import rule_settings
from felix.rules.model import Accept, Drop, Reject, Return


def resolved(
    environ: dict[str, str] | None = None, file: str = "", **stored: dict[str, Any]
) -> Resolved:
    objects = {name.replace("__", "."): {"spec": spec} for name, spec in stored.items()}
    return resolve("n1", environ=environ or {}, file_text=file, stored=objects)


def test_the_table_is_whole() -> None:
    assert len({p.name.lower() for p in PARAMETERS}) == len(PARAMETERS)
    assert len({p.field for p in PARAMETERS}) == len(PARAMETERS)
    for parameter in PARAMETERS:
        assert parameter.doc.endswith(".")
        assert getattr(Config(), parameter.attribute) == parameter.default


def test_defaults_are_calicos() -> None:
    config = resolved().config
    assert config == Config()
    assert config.iptables_refresh_interval == 180
    assert config.default_endpoint_to_host_action == "DROP"
    assert config.iptables_mark_mask == 0xFFFF0000
    assert (config.health_port, config.prometheus_metrics_port) == (9099, 9091)


def test_the_strongest_source_wins() -> None:
    environ = {"FELIX_HEALTHPORT": "4"}
    file = "[global]\nHealthPort = 3\nIpv6Support = false\n"
    stored: dict[str, dict[str, Any]] = {
        "default": {"healthPort": 1, "ipv6Support": True, "interfacePrefix": "tap"},
        "node__n1": {"healthPort": 2, "reportingInterval": "0s"},
        "node__n2": {"healthPort": 9},
    }
    found = resolved(environ, file, **stored)
    assert found.config.health_port == 4
    assert found.config.ipv6_support is False
    assert found.config.interface_prefix == ("tap",)
    assert found.config.reporting_interval == 0
    assert found.origins["health_port"] == "environment"
    assert found.origins["ipv6_support"] == "felix.cfg"
    assert resolved({}, "", **stored).config.health_port == 2
    assert found.problems == ()


@pytest.mark.parametrize(
    ("value", "seconds"), [("5", 5), ("0.5", 0.5), ("1m30s", 90), ("100ms", 0.1), ("none", 0)]
)
def test_durations(value: str, seconds: float) -> None:
    config = resolved({"FELIX_IPTABLESREFRESHINTERVAL": value}).config
    assert config.iptables_refresh_interval == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("IptablesRefreshInterval", "soon", "must be seconds"),
        ("IptablesRefreshInterval", "-1", "must not be negative"),
        ("HealthPort", "70000", "must be a whole number from 1 to 65535"),
        ("HealthPort", "none", "must not be none"),
        ("HealthEnabled", "maybe", "must be true or false"),
        ("ChainInsertMode", "middle", "must be one of insert, append"),
        ("IptablesMarkMask", "0xf", "at least 5 bits"),
        ("InterfacePrefix", "a/b", "comma list"),
        ("NATPortRange", "9:1", "range low:high"),
        ("NATOutgoingAddress", "x", "does not appear"),
        ("NoSuchThing", "1", "not a parameter"),
    ],
)
def test_a_bad_value_is_named_and_the_default_used(name: str, value: str, words: str) -> None:
    found = resolved({f"FELIX_{name.upper()}": value})
    assert found.config == Config()
    (problem,) = found.problems
    assert name.lower() in str(problem).lower()
    assert value in str(problem)
    assert words in str(problem)


def test_empty_values_count_as_unset() -> None:
    found = resolved({"FELIX_HEALTHPORT": ""}, "", default={"healthPort": 7})
    assert found.config.health_port == 7


def test_a_file_without_sections_and_one_that_is_no_file() -> None:
    assert resolved({}, "HealthPort = 5\n").config.health_port == 5
    found = resolved({}, "[global\nx")
    assert found.config == Config()
    assert "cannot be read" in str(found.problems[0])


def test_what_belongs_to_the_datastore_client_is_no_problem() -> None:
    assert resolved({"FELIX_DATASTORETYPE": "etcdv3", "FELIX_ETCDENDPOINTS": "x"}).problems == ()


def test_local_parameters_do_not_come_from_the_datastore() -> None:
    found = resolved({}, "", default={"felixHostname": "evil"})
    assert found.config.felix_hostname == ""
    assert "local" in str(found.problems[0])


def test_annotations_inject_parameters_by_name() -> None:
    entry = {"spec": {}, "annotations": {"config.projectcalico.org/HealthPort": "6", "x/y": "1"}}
    assert resolve("n1", environ={}, stored={"default": entry}).config.health_port == 6


def test_parameters_become_rules() -> None:
    config = resolved(
        {
            "FELIX_DEFAULTENDPOINTTOHOSTACTION": "Return",
            "FELIX_IPTABLESFILTERALLOWACTION": "Return",
            "FELIX_IPTABLESFILTERDENYACTION": "Reject",
            "FELIX_NATOUTGOINGADDRESS": "192.0.2.1",
            "FELIX_CHAININSERTMODE": "Append",
            "FELIX_NATPORTRANGE": "1000:2000",
        }
    ).config
    v4, v6 = rule_settings(config, 4), rule_settings(config, 6)
    assert v4.endpoint_to_host == Return()
    assert v4.verdicts.allow == Return()
    assert v4.verdicts.deny == Reject()
    assert v4.append
    assert v4.nat.port_range == (1000, 2000)
    assert (v4.nat.address_v4, v6.nat.address_v6) == ("192.0.2.1", "")
    assert rule_settings(Config(), 4).endpoint_to_host == Drop()
    assert rule_settings(Config(), 4).mangle_allow == Accept()


def chosen(labels: dict[str, str], **specs: dict[str, Any]) -> Resolved:
    """`chosen` configurations on a node with labels."""
    stored = {name.replace("__", "."): {"spec": spec} for name, spec in specs.items()}
    return resolve("n1", environ={}, stored=stored, labels=labels)


def test_a_configuration_with_a_selector_stands_between_default_and_node() -> None:
    specs: dict[str, dict[str, Any]] = {
        "default": {"healthPort": 1, "vxlanPort": 1, "natPortRange": 1},
        "racks": {"nodeSelector": "rack == 'a'", "healthPort": 2, "vxlanPort": 2},
        "node__n1": {"healthPort": 3},
    }
    here, there = chosen({"rack": "a"}, **specs), chosen({"rack": "b"}, **specs)
    assert (here.config.health_port, here.config.vxlan_port) == (3, 2)
    assert here.config.nat_port_range == (1, 1)
    assert here.origins["vxlan_port"] == "FelixConfiguration(racks)"
    assert (there.config.health_port, there.config.vxlan_port) == (3, 1)
    assert here.problems == there.problems == ()


def test_two_that_choose_one_node_are_taken_by_name_and_the_other_is_named() -> None:
    found = chosen(
        {"a": ""},
        b={"nodeSelector": "has(a)", "healthPort": 2, "vxlanPort": 7},
        a={"nodeSelector": "all()", "healthPort": 1, "vxlanPort": 7},
    )
    assert (found.config.health_port, found.config.vxlan_port) == (1, 7)
    (problem,) = found.problems
    assert problem.source == "FelixConfiguration(b)"
    assert "FelixConfiguration(a) says 1" in str(problem)


@pytest.mark.parametrize("selector", ["", "has(", None])
def test_a_configuration_for_nobody_is_named(selector: str | None) -> None:
    found = chosen({"a": ""}, odd={"nodeSelector": selector, "healthPort": 2})
    assert found.config == Config()
    (problem,) = found.problems
    assert "nodeSelector" in str(problem)


def test_the_new_kinds_of_values() -> None:
    environ = {
        "FELIX_HEALTHTIMEOUTOVERRIDES": "CalculationGraph=2m, InternalDataplaneMainLoop=30",
        "FELIX_DATAPLANEWATCHDOGTIMEOUT": "19",
        "FELIX_MTUIFACEPATTERN": "eth(?=0)",
        "FELIX_OPENSTACKREGION": "North/1",
    }
    found = resolved(environ)
    overrides = (("CalculationGraph", 120.0), ("InternalDataplaneMainLoop", 30.0))
    assert found.config == Config(health_timeout_overrides=overrides)
    assert len(found.problems) == 3
    stored = [{"name": "FelixStartup", "timeout": "1m30s"}]
    assert resolved({}, "", default={"healthTimeoutOverrides": stored}).config == Config(
        health_timeout_overrides=(("FelixStartup", 90.0),)
    )


def test_external_nodes_are_a_list_or_have_commas_between() -> None:
    def of(environ: dict[str, str], spec: dict[str, object]) -> tuple[str, ...]:
        stored = {"default": {"spec": spec, "annotations": {}}}
        return resolve("n", environ=environ, stored=stored).config.external_nodes_list

    assert of({}, {"externalNodesList": ["10.0.0.7/8", "10.9.0.1"]}) == (
        "10.0.0.0/8",
        "10.9.0.1/32",
    )
    assert of({"FELIX_EXTERNALNODESLIST": "10.9.0.1, 10.9.0.2"}, {}) == (
        "10.9.0.1/32",
        "10.9.0.2/32",
    )
    assert of({"FELIX_EXTERNALNODESLIST": "fd00::/8"}, {}) == ()
