"""Questions that belief answers without a change: why a partition is as it is, and predictions."""
