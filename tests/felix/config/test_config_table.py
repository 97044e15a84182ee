"""The table of parameters is whole, and the page made of it is current."""

from __future__ import annotations

from pathlib import Path

from felix.config import document
from felix.config.others import DATASTORE, OTHERS, TYPHA
from felix.config.parameters import PARAMETERS
from felix.config.resolve import resolve
from libcalico.model import FelixConfigurationSpec
from libcalico.model.enforcement.table import felix_parameter

ROOT = Path(__file__).parents[3]
FIELDS = set(FelixConfigurationSpec.__struct_fields__)


def test_every_field_is_a_parameter_once() -> None:
    acted_on, others = [p.field for p in PARAMETERS], [o.field for o in OTHERS]
    assert len(set(acted_on)) == len(acted_on)
    assert len(set(others)) == len(others)
    assert set(acted_on) & set(others) == set(), "enforced: take its line out of others.py"
    assert set(others) <= FIELDS
    # The selector says for which nodes the others are.
    assert set(acted_on) | set(others) >= FIELDS - {"nodeSelector"}


def test_only_local_and_annotated_parameters_have_no_field() -> None:
    assert {p.name for p in PARAMETERS if p.field not in FIELDS} == {
        "FelixHostname",
        "IptablesLockTimeoutSecs",
        "TyphaCAFile",
        "TyphaCertFile",
        "TyphaKeyFile",
    }


def test_names_are_the_fields_but_for_calicos_exceptions() -> None:
    names = {p.name: p.field for p in PARAMETERS} | {o.name: o.field for o in OTHERS}
    different = {name for name, field in names.items() if name.lower() != field.lower()}
    assert different == {
        "IpInIpEnabled",
        "IpInIpMtu",
        "ReportingIntervalSecs",
        "ReportingTTLSecs",
        "EndpointReportingDelaySecs",
        "IptablesPostWriteCheckIntervalSecs",
        "IptablesLockProbeIntervalMillis",
        "NetlinkTimeoutSecs",
        "UsageReportingInitialDelaySecs",
        "UsageReportingIntervalSecs",
    }


def test_why_a_parameter_is_not_enforced_is_said() -> None:
    assert [o.name for o in OTHERS if not getattr(felix_parameter(o.field), "why", "")] == []


def test_a_parameter_that_is_not_enforced_is_named_by_every_name() -> None:
    environ = {
        "FELIX_NETLINKTIMEOUTSECS": "7",
        "FELIX_BPFENABLED": "true",
        "FELIX_TYPHAADDR": "x:1",
    }
    told = sorted(str(p) for p in resolve("n", environ=environ).problems if not p.unknown)
    assert len(told) == 3
    assert all("not enforced" in line for line in told)


def test_what_asks_for_nothing_is_not_named() -> None:
    environ = {"FELIX_BPFENABLED": "false", "FELIX_TYPHAK8SSERVICENAME": "none"}
    environ |= {f"FELIX_{name.upper()}": "x" for name in DATASTORE}
    assert resolve("n", environ=environ).problems == ()


def test_the_page_is_current_and_names_everything() -> None:
    page = (ROOT / "docs" / "felix-configuration.md").read_text()
    assert page == document.text() + "\n", "run ./run fields"
    names = [p.name for p in PARAMETERS] + [o.name for o in OTHERS] + [*DATASTORE, *TYPHA]
    assert [name for name in names if f"`{name}`" not in page] == []
