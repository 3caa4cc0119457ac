"""The museum of bugs: what went wrong in Kafka's controllers, played against ours, each with a mutant that fails it."""
