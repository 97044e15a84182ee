"""The pod of an address, here and on other nodes."""

from __future__ import annotations

from felix.calc.graph import Calculator
from felix.calc.sets.pods_by_address import pod_at
from tests.felix.policy_objects import Object, host, pod


def calculator(*objects: Object) -> Calculator:
    calc = Calculator("me")
    for key, value in objects:
        calc.update(key, value)
    calc.policy.flush()
    return calc


def test_pods_here_and_elsewhere_are_named_in_full() -> None:
    calc = calculator(
        pod("web-x2x7k", ["10.0.0.1", "fd00::1"], {}),
        pod("db-0", "10.0.0.2", {}, node="other"),
        host("hep", "eth0", node="other", addresses=["10.0.0.9"]),
    )
    population = calc.policy.places.population
    assert pod_at(population, "10.0.0.1") == "default/web-x2x7k"
    assert pod_at(population, "fd00::1") == "default/web-x2x7k"
    assert pod_at(population, "10.0.0.2") == "default/db-0"
    assert pod_at(population, "10.0.0.9") == "", "a host is no pod"
    assert pod_at(population, "10.0.0.3") == ""


def test_of_two_that_have_an_address_the_first_by_name_is_told() -> None:
    calc = calculator(
        pod("b", "10.0.0.1", {}, node="other"), pod("a", "10.0.0.1", {}, node="third")
    )
    assert pod_at(calc.policy.places.population, "10.0.0.1") == "default/a"


def test_a_pod_that_is_gone_is_not_told() -> None:
    key, value = pod("a", "10.0.0.1", {}, node="other")
    calc = calculator((key, value))
    calc.update(key, None)
    calc.policy.flush()
    assert pod_at(calc.policy.places.population, "10.0.0.1") == ""
