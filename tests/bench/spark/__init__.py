"""`make bench-spark`: the Spark jobs beside DuckDB, Polars and a plain loop, in one run on one input."""
