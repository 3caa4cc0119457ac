"""The Spark jobs, and the same by processes of this machine."""
