"""Settings of `calico-goldmane`: environment variables, with Goldmane's names where it has them.

What Goldmane has and this has not (`PUSH_URL`, windows of other lengths than 15 s) is refused by
name instead of passed over.

Source: https://github.com/projectcalico/calico goldmane/pkg/daemon (Config).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flows.aggregate.ring import MOST_ROWS
from flows.record import INTERVAL
from libcalico import parsing
from libcalico.errors import InvalidValue

PORT, HEALTH_PORT = 7443, 8080


@dataclass(frozen=True, slots=True)
class Settings:
    """`askers` and `deliverers`: the names of client certificates that may; empty is every one of
    the authority. `export_bytes` and `export_files` bound the exported lines."""

    port: int = PORT
    certificate: str = ""
    key: str = ""
    ca: str = ""
    health_port: int = HEALTH_PORT
    health: bool = True
    metrics_port: int = 0
    most_rows: int = MOST_ROWS
    askers: frozenset[str] = frozenset()
    deliverers: frozenset[str] = frozenset()
    export_file: str = ""
    export_bytes: int = 100_000_000
    export_files: int = 5
    otlp: str = ""

    @property
    def encrypted(self) -> bool:
        """Whether clients must show a certificate, as everywhere outside of tests."""
        return bool(self.certificate)


def read(environ: Mapping[str, str]) -> Settings:
    """The settings of an environment. Raises InvalidValue naming the variable."""
    _refuse(environ)
    settings = Settings(
        port=_number(environ, "PORT", PORT, 0, 65535),
        certificate=environ.get("SERVER_CERT_PATH", ""),
        key=environ.get("SERVER_KEY_PATH", ""),
        ca=environ.get("CA_CERT_PATH", ""),
        health_port=_number(environ, "HEALTH_PORT", HEALTH_PORT, 0, 65535),
        health=_boolean(environ, "HEALTH_ENABLED", True),
        metrics_port=_number(environ, "PROMETHEUS_PORT", 0, 0, 65535),
        most_rows=_number(environ, "GOLDMANE_MOST_ROWS", MOST_ROWS, 1000, 20_000_000),
        askers=_names(environ, "GOLDMANE_ASKERS"),
        deliverers=_names(environ, "GOLDMANE_DELIVERERS"),
        export_file=environ.get("GOLDMANE_EXPORT_FILE", ""),
        export_bytes=_number(
            environ, "GOLDMANE_EXPORT_BYTES", 100_000_000, 10_000, 100_000_000_000
        ),
        export_files=_number(environ, "GOLDMANE_EXPORT_FILES", 5, 1, 1000),
        otlp=_endpoint(environ),
    )
    _check_tls(settings, _boolean(environ, "GOLDMANE_WITHOUT_TLS", False))
    return settings


def _refuse(environ: Mapping[str, str]) -> None:
    window = environ.get("AGGREGATION_WINDOW", "15s")
    if window not in (f"{INTERVAL}s", str(INTERVAL)):
        raise InvalidValue("AGGREGATION_WINDOW", window, f"{INTERVAL}s is the one that there is")
    if url := environ.get("PUSH_URL", ""):
        rule = "flows are exported by GOLDMANE_EXPORT_FILE or GOLDMANE_OTLP_ENDPOINT"
        raise InvalidValue("PUSH_URL", url, rule)


def _check_tls(settings: Settings, without: bool) -> None:
    paths = {
        "SERVER_CERT_PATH": settings.certificate,
        "SERVER_KEY_PATH": settings.key,
        "CA_CERT_PATH": settings.ca,
    }
    missing = [name for name, path in paths.items() if not path]
    if missing and not (without and len(missing) == len(paths)):
        rule = "certificate, key and authority are needed; GOLDMANE_WITHOUT_TLS=true is for tests"
        raise InvalidValue(missing[0], "", rule)
    if not settings.encrypted and (settings.askers or settings.deliverers):
        raise InvalidValue("GOLDMANE_WITHOUT_TLS", "true", "names of certificates need TLS")


def _endpoint(environ: Mapping[str, str]) -> str:
    text = environ.get("GOLDMANE_OTLP_ENDPOINT", "")
    if text:
        parsing.url("GOLDMANE_OTLP_ENDPOINT", text, path=True)
    return text


def _names(environ: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(one.strip() for one in environ.get(name, "").split(",") if one.strip())


def _boolean(environ: Mapping[str, str], name: str, default: bool) -> bool:
    text = environ.get(name, "").strip()
    return parsing.flag(name, text) if text else default


def _number(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environ.get(name, "").strip()
    return parsing.number(name, text, least, most) if text else default
