"""The pure core: belief, the events that may happen, and the decisions that follow.

It imports the standard library's data tools, msgspec and itself; it reads no clock, draws no random number, does
no I/O and logs nothing. Time and entropy are arguments. `tests/test_tidy.py` holds it to that.
"""
