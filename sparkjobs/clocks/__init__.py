"""The brokers' clocks, judged from the logs."""
