"""Throw-away certificate authorities and certificates: the lab's maker, and wrong ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lab.certificates import Certificates, make_certificates

__all__ = ["Authority", "Certificates", "Pair", "make_certificates"]

_CONFIG = """\
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = optional
[req]
distinguished_name = dn
[dn]
"""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a folder of its own; its certificates may be wrong by wish."""

    def __init__(self, folder: Path, name: str, lasts: timedelta = timedelta(days=30)) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        (self.folder / "index.txt").touch()
        (self.folder / "ca.cnf").write_text(_CONFIG)
        self.cert = self.folder / f"{name}.pem"
        self.key = self.folder / f"{name}.key"
        extensions = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign\n"
        now = datetime.now(UTC)
        start = min(now, now + lasts) - timedelta(days=1)
        self._sign(name, f"/CN={name}", extensions, start, now + lasts, own=True)

    def issue(
        self,
        name: str,
        *,
        names: Sequence[str] = ("IP:127.0.0.1",),
        usage: str = "serverAuth,clientAuth",
        start: timedelta = timedelta(days=-1),
        end: timedelta = timedelta(days=30),
        named: bool = True,
    ) -> Pair:
        """A certificate, valid from `start` to `end` as seen from now. `named`: has a CN."""
        extensions = f"extendedKeyUsage={usage}\n"
        if names:
            extensions += f"subjectAltName={','.join(names)}\n"
        now = datetime.now(UTC)
        subject = f"/CN={name}" if named else "/"
        return self._sign(name, subject, extensions, now + start, now + end)

    def _sign(
        self,
        name: str,
        subject: str,
        extensions: str,
        start: datetime,
        end: datetime,
        own: bool = False,
    ) -> Pair:
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        request = ("-subj", subject, "-keyout", str(pair.key), "-out", f"{name}.csr")
        self._run("req", "-config", "ca.cnf", *curve, *request)
        (self.folder / f"{name}.ext").write_text(extensions)
        dates = [f"{when:%Y%m%d%H%M%SZ}" for when in (start, end)]
        signer = ("-selfsign",) if own else ("-cert", str(self.cert))
        files = ("-in", f"{name}.csr", "-out", str(pair.cert), "-extfile", f"{name}.ext")
        self._run(
            *("ca", "-batch", "-notext", "-config", "ca.cnf", "-keyfile", str(self.key)),
            *(*signer, "-startdate", dates[0], "-enddate", dates[1], *files),
        )
        return pair

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            ["openssl", *arguments],
            cwd=self.folder,
            capture_output=True,
            env={"PATH": os.environ["PATH"], "RANDFILE": os.devnull},
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
