"""The base of every package: configuration and limits, clocks, logging, a bell that wakes waiters, timings."""
