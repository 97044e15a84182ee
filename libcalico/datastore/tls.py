"""Why TLS with etcd does not work, in one sentence that says what to mend (PAIN-32).

gRPC reports a failed handshake as an unavailable server, and some of its causes not at all.
Here the same files are looked at, and the same handshake is made once more with Python's
own TLS, whose answers can be read. Nothing here decides trust: the connection itself is
gRPC's, this only explains it.

`inspect` looks at the files alone; `probe` talks to the endpoints; both give findings.

Tested in tests/libcalico/test_tls.py with certificates that are wrong in every way.
"""

from __future__ import annotations

import asyncio
import os
import stat
from datetime import UTC, datetime, timedelta

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import x509
from libcalico.datastore.pem import labels, settle
from libcalico.datastore.tls_probe import Finding, Probe
from libcalico.errors import CertificateProblem

SOON = timedelta(days=14)
"""A certificate that ends within this time is worth a warning."""


def inspect(config: DatastoreConfig, now: datetime | None = None) -> list[Finding]:
    """Check the files alone: readable, PEM, key fits certificate, dates."""
    if not any(one.startswith("https://") for one in config.endpoints):
        return []
    try:
        material = settle(config)
    except CertificateProblem as problem:
        return [Finding("error", problem.subject, str(problem))]
    now = now or datetime.now(UTC)
    names = labels(config)
    findings: list[Finding] = []
    if config.key_file and stat.S_IMODE(os.stat(config.key_file).st_mode) & 0o077:
        text = "others than its owner can read this private key: chmod 600"
        findings.append(Finding("warning", config.key_file, text))
    for content, label in ((material.ca, names["ca"]), (material.cert, names["cert"])):
        findings += [_judged(der, label, now) for der in x509.encoded(content)]
    return findings


def _judged(der: bytes, label: str, now: datetime) -> Finding:
    """What is to be said of one certificate of a file."""
    try:
        one = x509.parse(der)
    except ValueError as problem:
        return Finding("error", label, f"a certificate cannot be read: {problem}")
    if trouble := one.dates(now):
        return Finding("error", label, f"{trouble} ({one.described()})")
    if one.not_after - now < SOON:
        left = (one.not_after - now).days
        return Finding("warning", label, f"it ends in {left} days ({one.subject})")
    return Finding("ok", label, one.described())


async def probe(config: DatastoreConfig, timeout: float = 3.0) -> list[Finding]:
    """Make one handshake with every endpoint: the obstacle, or the certificate that it shows."""
    return list(await asyncio.gather(*(_probe(one, config, timeout) for one in config.endpoints)))


async def explain(endpoint: str, config: DatastoreConfig, timeout: float) -> str:
    """Why the handshake with one endpoint fails; empty when TLS is not at fault.

    Takes `timeout` seconds at most, and CONNECT_SECONDS where no kernel answers.
    """
    finding = await _probe(endpoint, config, timeout)
    return finding.text if finding.level == "error" and finding.area == "tls" else ""


async def _probe(endpoint: str, config: DatastoreConfig, timeout: float) -> Finding:
    try:
        async with asyncio.timeout(timeout):
            return await Probe(endpoint, config).run()
    except TimeoutError:
        text = f"no answer to a TLS handshake within {timeout:.3g} s"
        return Finding("error", endpoint, text, "network")
    except CertificateProblem as problem:
        return Finding("error", problem.subject, str(problem))
