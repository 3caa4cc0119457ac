"""The record of what the controller does: the state-change log, its recent lines, its meters."""
