"""The tables between the jobs: silver, gold, and how their rows become Arrow."""
