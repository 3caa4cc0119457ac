"""The deployment: containers, Grafana, the wheel."""
