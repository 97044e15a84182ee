"""Checks of the datastore: settings, certificates, answers.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from ipaddress import ip_address

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.datastore_facts import Certificate
from node.checks.facts import Facts

SOON = timedelta(days=30)
SLOW = 100.0
NOT_SET = "no datastore is configured (ETCD_ENDPOINTS or --config)"


@check(
    "datastore-config",
    required=True,
    cause="Settings that contradict each other leave the node without a datastore.",
    fix="Correct the variable or the field of the configuration file that is named.",
)
def datastore_config(facts: Facts) -> Finding:
    """The settings of the datastore are complete and fit together."""
    if facts.store.config_error:
        return bad(facts.store.config_error)
    if not facts.store.configured:
        return unknown(NOT_SET)
    return good(", ".join(one.url for one in facts.store.endpoints))


@check(
    "datastore-endpoints",
    required=False,
    cause="A dead endpoint costs redundancy, and time whenever it is tried first.",
    fix="Start etcd there, open its client port (2379), or remove the endpoint.",
)
def datastore_endpoints(facts: Facts) -> Finding:
    """Every endpoint takes connections."""
    if not facts.store.endpoints:
        return unknown(NOT_SET)
    dead = [f"{one.url}: {one.error}" for one in facts.store.endpoints if one.error]
    return bad("; ".join(dead)) if dead else good(f"{len(facts.store.endpoints)} answer")


@check(
    "datastore-reachable",
    required=True,
    cause="A node that cannot read the datastore gets no addresses, no policy and no peers.",
    fix="Follow the error: network, certificate, user or role.",
)
def datastore_reachable(facts: Facts) -> Finding:
    """The datastore answers a read with these credentials."""
    if facts.store.error is None:
        return unknown(NOT_SET)
    return bad(facts.store.error) if facts.store.error else good("a read was answered")


@check(
    "datastore-latency",
    required=False,
    cause="Every pod start waits for at least one transaction.",
    fix="Look at the datastore's disk and load, and at the network between.",
)
def datastore_latency(facts: Facts) -> Finding:
    """A read takes less than 100 ms."""
    if facts.store.error is None or facts.store.error:
        return unknown("the datastore did not answer")
    latency = f"{facts.store.milliseconds:.1f} ms"
    return (good if facts.store.milliseconds < SLOW else bad)(latency)


@check(
    "tls-files",
    required=True,
    cause="A certificate, key or authority that cannot be read ends every connection before it"
    " begins.",
    fix="Name files that exist, that the process may read, and that belong together.",
)
def tls_files(facts: Facts) -> Finding:
    """Certificates and keys can be read and fit together."""
    if not facts.store.files and not facts.store.file_errors:
        return unknown("no TLS files are configured")
    errors = list(facts.store.file_errors)
    errors += [f"{one.source}: {one.error}" for one in facts.store.files if one.error]
    return (
        bad("; ".join(errors))
        if errors
        else good(", ".join(dict.fromkeys(one.source for one in facts.store.files)))
    )


@check(
    "tls-key-mode",
    required=False,
    cause="Who reads the key can act as this node.",
    fix="chmod 0600 the key file.",
)
def tls_key_mode(facts: Facts) -> Finding:
    """The private key is not readable by everyone."""
    if not facts.store.key_modes:
        return unknown("no key file is configured")
    wide = [f"{path}: {mode:04o}" for path, mode in facts.store.key_modes.items() if mode & 0o004]
    return bad("; ".join(wide)) if wide else good("not readable by others")


def _certificates(facts: Facts) -> list[Certificate]:
    served = [one.certificate for one in facts.store.endpoints if one.certificate is not None]
    return [one for one in (*facts.store.files, *served) if one.not_after is not None]


@check(
    "tls-dates",
    required=True,
    cause="Outside its dates a certificate is refused, by every node at once.",
    fix="Renew the certificate that is named, or correct this machine's clock.",
)
def tls_dates(facts: Facts) -> Finding:
    """No certificate is expired or not yet valid; none expires within 30 days."""
    certificates = _certificates(facts)
    if not certificates:
        return unknown("no certificates are in use")
    for one in certificates:
        if one.not_after is not None and one.not_after <= facts.now:
            return bad(f"{one.source} ({one.subject}) expired {_date(one.not_after)}")
        if one.not_before is not None and one.not_before > facts.now:
            return bad(f"{one.source} ({one.subject}) is valid from {_date(one.not_before)} only")
    first = min(certificates, key=lambda one: one.not_after or datetime.max)
    assert first.not_after is not None
    expiry = f"{first.source} ({first.subject}) expires first: {_date(first.not_after)}"
    return doubtful(expiry) if first.not_after - facts.now < SOON else good(expiry)


def _date(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


@check(
    "tls-san",
    required=True,
    cause="The certificate of an endpoint must name the host that is dialled; else the client hangs"
    " up.",
    fix="Dial a name that the certificate has, or make one with this name (subjectAltName).",
)
def tls_san(facts: Facts) -> Finding:
    """Endpoints' certificates name the hosts in their URLs."""
    served = [one for one in facts.store.endpoints if one.certificate is not None]
    if not served:
        return unknown("no endpoint serves a certificate")
    for one in served:
        assert one.certificate is not None
        if not any(covers(name, one.host) for name in one.certificate.names):
            names = ", ".join(one.certificate.names) or "none"
            return bad(f"{one.url}: its certificate ({one.certificate.subject}) names: {names}")
    return good(f"{len(served)} endpoint(s)")


def covers(name: str, host: str) -> bool:
    """Whether a subjectAltName is for `host` (RFC 6125: one `*` as the whole left-most label)."""
    try:
        return ip_address(name) == ip_address(host)
    except ValueError:
        pass
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    if name.startswith("*."):
        label, _, rest = host.partition(".")
        return bool(label) and rest == name[2:]
    return name == host


@check(
    "tls-chain",
    required=True,
    cause="A certificate that the configured authority did not sign is refused.",
    fix="Set ETCD_CA_CERT_FILE to the authority that signed the endpoints' certificates.",
)
def tls_chain(facts: Facts) -> Finding:
    """The authority that is configured signed the endpoints' certificates."""
    served = [one for one in facts.store.endpoints if one.certificate is not None]
    if not served:
        return unknown("no endpoint serves a certificate")
    broken = [f"{one.url}: {one.verify_error}" for one in served if one.verify_error]
    return bad("; ".join(broken)) if broken else good(f"{len(served)} endpoint(s)")
