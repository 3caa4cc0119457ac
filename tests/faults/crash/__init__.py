"""Crash points: a process dies at each await of the shell in turn, and whoever comes after it finishes the work."""
