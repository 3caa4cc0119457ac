"""What happened? Answers from state-change logs, ours and Apache Kafka's, by Spark or without it.

Imports nothing of the controller: the log's format is the contract. Two engines are to give equal rows: Spark, and
plain Python (`local`) for what is so small that starting Spark costs more than the work; pyspark is imported only
where Spark runs. `DESIGN.md` beside this file is its one page.
"""
