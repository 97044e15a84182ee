"""Settings from the environment: what is read, and what is refused by name."""

from __future__ import annotations

import pytest

from flows.server.settings import read
from libcalico.errors import InvalidValue

TLS = {"SERVER_CERT_PATH": "/c", "SERVER_KEY_PATH": "/k", "CA_CERT_PATH": "/ca"}


def test_defaults() -> None:
    settings = read(TLS)
    assert (settings.port, settings.health_port, settings.metrics_port) == (7443, 8080, 0)
    assert (settings.most_rows, settings.health, settings.encrypted) == (2_000_000, True, True)
    assert not settings.askers
    assert (settings.export_file, settings.otlp) == ("", "")


def test_everything_is_read() -> None:
    settings = read(
        TLS
        | {
            "PORT": "8443",
            "HEALTH_ENABLED": "false",
            "HEALTH_PORT": "1",
            "PROMETHEUS_PORT": "9081",
            "GOLDMANE_MOST_ROWS": "5000",
            "GOLDMANE_ASKERS": "admin, web",
            "GOLDMANE_DELIVERERS": "calico-node",
            "GOLDMANE_EXPORT_FILE": "/var/log/flows.json",
            "GOLDMANE_EXPORT_BYTES": "20000",
            "GOLDMANE_EXPORT_FILES": "2",
            "GOLDMANE_OTLP_ENDPOINT": "http://collector:4318",
        }
    )
    assert (settings.port, settings.health, settings.health_port) == (8443, False, 1)
    assert (settings.metrics_port, settings.most_rows) == (9081, 5000)
    assert settings.askers == {"admin", "web"}
    assert settings.deliverers == {"calico-node"}
    assert settings.export_file == "/var/log/flows.json"
    assert (settings.export_bytes, settings.export_files) == (20000, 2)
    assert settings.otlp == "http://collector:4318"


@pytest.mark.parametrize(
    ("change", "field", "allowed"),
    [
        ({"PORT": "https"}, "PORT", "0 to 65535"),
        ({"PORT": "70000"}, "PORT", "0 to 65535"),
        ({"PORT": "-1"}, "PORT", "0 to 65535"),
        ({"HEALTH_ENABLED": "maybe"}, "HEALTH_ENABLED", "true or false"),
        ({"GOLDMANE_MOST_ROWS": "5"}, "GOLDMANE_MOST_ROWS", "1000"),
        ({"GOLDMANE_EXPORT_FILES": "0"}, "GOLDMANE_EXPORT_FILES", "1 to 1000"),
        ({"GOLDMANE_OTLP_ENDPOINT": "collector:4318"}, "GOLDMANE_OTLP_ENDPOINT", "http://"),
        ({"PUSH_URL": "https://linseed"}, "PUSH_URL", "GOLDMANE_EXPORT_FILE"),
        ({"AGGREGATION_WINDOW": "60s"}, "AGGREGATION_WINDOW", "15s"),
        ({"CA_CERT_PATH": ""}, "CA_CERT_PATH", "authority"),
        ({"SERVER_KEY_PATH": "", "GOLDMANE_WITHOUT_TLS": "true"}, "SERVER_KEY_PATH", "needed"),
    ],
)
def test_what_is_wrong_is_refused_by_name(change: dict[str, str], field: str, allowed: str) -> None:
    with pytest.raises(InvalidValue, match=allowed) as caught:
        read(TLS | change)
    assert caught.value.field == field


def test_without_tls_only_where_it_is_asked_for() -> None:
    assert not read({"GOLDMANE_WITHOUT_TLS": "true"}).encrypted
    with pytest.raises(InvalidValue, match="GOLDMANE_WITHOUT_TLS"):
        read({})
    with pytest.raises(InvalidValue, match="need TLS"):
        read({"GOLDMANE_WITHOUT_TLS": "true", "GOLDMANE_ASKERS": "admin"})


def test_goldmanes_own_window_is_taken() -> None:
    assert read(TLS | {"AGGREGATION_WINDOW": "15s"}).port == 7443
