"""Kafka's protocol for clients, on the listeners of a stub broker that keeps records.

The server, the codec and the admin APIs are those of the dedicated controller (`controller/kafka`). Here is what only a
broker with records answers: Metadata, Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, InitProducerId,
DescribeCluster and DescribeConfigs. FindCoordinator says that there are no groups. Each module parses and answers;
what is done, `logs.py` does.
"""
