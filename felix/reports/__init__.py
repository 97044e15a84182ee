"""What felix tells others: status, conditions, metrics, dropped packets."""
