"""Records and what follows from them, held against what Kafka's and ZooKeeper's own tools say."""
