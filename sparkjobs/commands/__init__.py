"""What the commands do, one module per kind. They print; nothing else in sparkjobs does."""
