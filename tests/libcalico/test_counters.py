"""The page of counters and gauges, beside Prometheus's own library."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from libcalico.process.counters import Counter, Gauge, Registry


def read(page: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples by name and values of labels, which stand in the order of their names."""
    families = text_string_to_metric_families(page.decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_is_counted_is_read() -> None:
    registry = Registry()
    calls = Counter("calls", "Calls.", ["command", "code"], registry=registry)
    flying = Gauge("flying", "Now.", registry=registry)
    assert ("flying", ()) in read(registry.page()), "without labels it is there at once"
    calls.inc("ADD", "0")
    calls.inc("ADD", "0")
    calls.inc('a"\\b\n', "11", by=0.5)
    flying.set(3)
    flying.inc(by=-1)
    found = read(registry.page())
    assert found["calls_total", ("0", "ADD")] == calls.value("ADD", "0") == 2
    assert found["calls_total", ("11", 'a"\\b\n')] == 0.5
    assert found["flying", ()] == 2
    calls.remove("ADD", "0")
    calls.remove("never", "said")
    assert ("calls_total", ("0", "ADD")) not in read(registry.page())


def test_a_metric_that_nobody_counted_yet_has_its_type() -> None:
    """So that an alert on it is no error."""
    registry = Registry()
    Counter("calls", "Calls.", ["code"], registry=registry)
    assert b"# HELP calls_total Calls.\n# TYPE calls_total counter\n" in registry.page()


def test_a_namesake_takes_the_place() -> None:
    registry = Registry()
    Gauge("one", "First.", registry=registry).set(1)
    Gauge("one", "Second.", registry=registry).set(2)
    assert read(registry.page())["one", ()] == 2
    assert registry.page().count(b"# TYPE one ") == 1


def test_the_wrong_number_of_labels_is_refused() -> None:
    registry = Registry()
    Counter("calls", "Calls.", ["command", "code"], registry=registry).inc("ADD")
    with pytest.raises(ValueError, match="zip"):
        registry.page()


def test_the_process_has_the_names_and_values_of_prometheus() -> None:
    ours = read(Registry().page())
    library = {
        (sample.name, ()): sample.value
        for family in ProcessCollector(registry=CollectorRegistry()).collect()
        for sample in family.samples
    }
    assert ours.keys() == library.keys()
    for name, value in library.items():
        assert ours[name] == pytest.approx(value, rel=0.2, abs=3), name


STORY = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(*sys.modules)
"""
HEAVY = {"prometheus_client", "http.client", "urllib.request", "email", "html", "zipfile"}
HEAVY |= {"grpc", "google", "yaml", "argparse", "configparser", "shutil", "lzma", "bz2"}


@pytest.mark.parametrize("program", ["felix.agent", "bgp.main", "cni.main", "node.main"])
def test_a_program_of_a_node_starts_without_libraries_that_it_does_not_use(program: str) -> None:
    """Each costs megabytes in each program, and brings nothing that is used there."""
    done = subprocess.run(
        [sys.executable, "-c", STORY, program], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(done.stdout.split())
