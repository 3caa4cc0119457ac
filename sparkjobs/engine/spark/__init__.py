"""The Spark engine: the same silver, from any number of machines. Only this package and its callers import pyspark."""
