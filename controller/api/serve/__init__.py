"""The application: its routes, its description, the dashboard's files."""
