"""The executor that is Spark, and the tables and streams that Spark keeps. Only this package and its callers import
pyspark."""
