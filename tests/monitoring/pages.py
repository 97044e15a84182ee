"""Pages of metrics inside a lab's machines, served outside for one Prometheus.

A page is read anew for each request, with curl in the machine. What no machine serves is given as
a function.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lab.errors import LabError
from lab.machine import Machine

Page = Callable[[], bytes]


def inside(machine: Machine, port: int) -> Page:
    """The page that a machine serves on a port of localhost."""
    command = ["curl", "-sf", "-m", "30", f"http://127.0.0.1:{port}/metrics"]
    return lambda: machine.run(command).stdout.encode()


@contextlib.contextmanager
def served(pages: Mapping[tuple[str, str], Page]) -> Iterator[list[dict[str, Any]]]:
    """Pages by job and instance; gives the jobs for Prometheus, with these labels."""
    paths = {f"/{job}/{instance}": page for (job, instance), page in pages.items()}

    class Handler(BaseHTTPRequestHandler):
        """One request for one page."""

        def do_GET(self) -> None:
            """Read the page."""
            try:
                text, status = paths[self.path](), 200
            except (KeyError, LabError) as error:
                text, status = str(error).encode(), 503
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    target = f"127.0.0.1:{server.server_address[1]}"
    try:
        yield [
            {
                "job_name": f"{job}-{instance}",
                "metrics_path": f"/{job}/{instance}",
                "static_configs": [
                    {"targets": [target], "labels": {"instance": instance, "job": job}}
                ],
            }
            for job, instance in pages
        ]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
