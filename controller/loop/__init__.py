"""The loop of a term: reads, decides, writes, tells, one event at a time."""
