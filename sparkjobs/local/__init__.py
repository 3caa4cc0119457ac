"""The local engine: plain Python, one process; faster than Spark on small bundles, and what it is held against."""
