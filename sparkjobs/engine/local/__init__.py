"""The local engine: plain Python, one process; faster than Spark on small logs, and what it is held against."""
