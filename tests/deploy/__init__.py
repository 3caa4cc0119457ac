"""What is deployed: containers, Grafana, the wheel."""
