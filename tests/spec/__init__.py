"""The properties of the seat and of partitions, in TLA+: checked by TLC, and compared with recorded runs."""
