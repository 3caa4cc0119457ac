"""Stand-ins for what is outside the process; trusted because `tests/contract` runs against them and the real thing."""
