"""Flows as OpenTelemetry logs, sent over HTTP to a collector (`muslin[otlp]`).

One record for each flow: time and body, and attributes of the flow's members by the names of
`flows/written.py` below `flow.`; a denied flow has severity WARN.
Source: OpenTelemetry protocol 1.x, logs over HTTP (POST to /v1/logs).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from flows.record import Action, Flow
from flows.written import line, written
from libcalico.clusterinfo import our_version
from libcalico.errors import MuslinError

NANOSECONDS = 10**9
TIMEOUT = 10.0


class OTLP:
    """`endpoint` is http(s)://HOST:PORT. Raises MuslinError without the extra."""

    name = "otlp"

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            text = "GOLDMANE_OTLP_ENDPOINT needs the extra: pip install 'muslin[otlp]'"
            raise MuslinError(text) from None
        self._endpoint = endpoint
        self._exporter = OTLPLogExporter(f"{endpoint.rstrip('/')}/v1/logs", timeout=TIMEOUT)
        attributes = {"service.name": "calico-goldmane", "service.version": our_version()}
        self._resource = Resource.create(attributes)

    def write(self, flows: Sequence[Flow]) -> None:
        """Send one record for each flow. Raises MuslinError where the collector refuses them."""
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        result = self._exporter.export([self._record(flow) for flow in flows])
        if result is not LogRecordExportResult.SUCCESS:
            raise MuslinError(f"{self._endpoint} did not take {len(flows)} flows")

    def _record(self, flow: Flow) -> object:
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        members = msgspec.to_builtins(written(flow))
        members.pop("policies")
        denied = flow.key.action is Action.DENY
        record = LogRecord(
            timestamp=flow.start * NANOSECONDS,
            observed_timestamp=time.time_ns(),
            severity_number=SeverityNumber.WARN if denied else SeverityNumber.INFO,
            severity_text="WARN" if denied else "INFO",
            body=line(flow).decode(),
            attributes={f"flow.{name}": value for name, value in members.items()},
            event_name="flow",
        )
        return ReadableLogRecord(
            log_record=record,
            resource=self._resource,
            instrumentation_scope=InstrumentationScope("muslin.flows", our_version()),
        )

    def close(self) -> None:
        """End the connection."""
        self._exporter.shutdown()
