"""The engines that run the rules: processes of this machine, or Spark."""
