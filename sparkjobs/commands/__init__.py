"""The bodies of the commands, one module per kind. They print; no other part of sparkjobs does."""
