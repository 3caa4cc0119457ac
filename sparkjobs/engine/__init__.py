"""What runs the rules: processes of this machine, or Spark."""
