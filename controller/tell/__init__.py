"""Telling brokers: what each has still to be told, in which order it goes out, and the meaning of their answers."""
