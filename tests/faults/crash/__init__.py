"""Crash points: a process dies at each await of the shell in turn, and its successor finishes the work."""
