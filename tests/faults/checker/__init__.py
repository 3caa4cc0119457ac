"""The history checker: what a cluster did, judged by the invariants (S) and liveness rules (L) it has to keep."""
