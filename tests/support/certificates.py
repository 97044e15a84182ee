"""A throw-away certificate authority with a server and a client certificate: the lab's maker."""

from __future__ import annotations

from lab.certificates import Certificates, make_certificates

__all__ = ["Certificates", "make_certificates"]
