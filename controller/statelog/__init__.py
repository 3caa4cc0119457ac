"""The record of the controller's work: the state-change log, its recent lines, its meters."""
