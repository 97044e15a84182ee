"""Flows on their way out of the aggregator: lines of JSON in files, and OTLP."""
