"""Stand-ins for the world outside the process; trusted because `tests/contract` also runs against the real thing."""
