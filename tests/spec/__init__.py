"""What holds of the seat and of partitions, in TLA+: checked by TLC, and held against what really happened."""
