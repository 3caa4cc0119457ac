"""The Spark jobs and their local engine."""
