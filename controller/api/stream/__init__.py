"""Server-Sent Events: the decisions as they happen, and the dashboard's pulse."""
