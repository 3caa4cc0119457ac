"""The local engine: plain Python, one process. The oracle of the Spark engine, and faster than it on small bundles."""
