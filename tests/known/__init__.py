"""Records and conclusions from them, held against the output of Kafka's and ZooKeeper's own tools."""
