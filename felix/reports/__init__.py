"""Felix's reports: status, conditions, metrics, audits, dropped packets."""
