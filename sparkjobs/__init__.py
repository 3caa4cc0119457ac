"""What happened? Answers from state-change logs, ours and Apache Kafka's, by Spark or without it.

Imports nothing of the controller: the log's format is the contract. Two engines are to give equal rows: Spark, and
plain Python (`local`) for what is so small that starting Spark costs more than the work; pyspark is imported only
where Spark runs.

| Module | Owns |
|---|---|
| `schemas` | names and types of every table, declared once |
| `parse/` | what a line means, as data: `layouts` (how a line begins), `shapes*` (what it says), `vocabulary` (names of events), `payloads` (LeaderAndIsr and its kin); `lines` reads one line with them |
| `files` | which files there are, and what content: the manifest |
| `local/` | the local engine: `ingest` gives silver rows, a line at a time; `quick` the answers, by forms and on all cores |
| `spark/` | the Spark engine: session, ingest, clocks, streaming; its workers read lines with `parse.lines` |
| `skew` | what the clocks of the brokers were worth, from the logs' own round trips |
| `answers/` | one module per question, each with a Spark job and its local twin |
| `report/` | the page |
| `cli` | the commands, run as a process: `python -m sparkjobs` |
"""  # noqa: E501 - a table
