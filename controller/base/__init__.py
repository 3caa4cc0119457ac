"""What every package may use: configuration and limits, clocks, logging, a bell that wakes waiters, timings."""
