"""The cluster in containers: killed, paused, cut; the invariants that can be read from the outside hold after each."""
