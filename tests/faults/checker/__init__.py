"""The history checker: a cluster's history, judged by the invariants (S) and liveness rules (L) it has to keep."""
