"""Telling brokers: what each is owed, in which order it goes out, and what their answers mean."""
