"""What every long-running process does: logs, health, tasks, waits, files of its status."""
