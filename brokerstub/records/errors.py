"""The reasons of refusals, each with the code of Kafka's protocol. A refused request has changed nothing."""

from __future__ import annotations

from controller.core.codes import Code


class RecordsError(Exception):
    """The text is for people."""

    code = Code.UNKNOWN_SERVER_ERROR


class CorruptBatchError(RecordsError):
    """These bytes are no whole batch, or not the one that was sent: it may be sent again."""

    code = Code.CORRUPT_MESSAGE


class OldFormatError(RecordsError):
    """Format 0 or 1: a client from before Kafka 0.11."""

    code = Code.UNSUPPORTED_FOR_MESSAGE_FORMAT


class InvalidBatchError(RecordsError):
    """A whole batch that a producer must not send."""

    code = Code.INVALID_RECORD


class UnknownCompressionError(RecordsError):
    """A compression that format 2 does not have."""

    code = Code.UNSUPPORTED_COMPRESSION_TYPE


class BatchTooLargeError(RecordsError):
    """Larger than `max.message.bytes`."""

    code = Code.MESSAGE_TOO_LARGE


class SegmentTooSmallError(RecordsError):
    """Larger than a segment."""

    code = Code.RECORD_LIST_TOO_LARGE


class OutOfOrderSequenceError(RecordsError):
    """A batch of this producer is missing before this one."""

    code = Code.OUT_OF_ORDER_SEQUENCE_NUMBER


class StaleProducerError(RecordsError):
    """The producer id was given on, at a higher epoch."""

    code = Code.INVALID_PRODUCER_EPOCH


class OffsetOutOfRangeError(RecordsError):
    """Before the log's start, or behind the readable end."""

    code = Code.OFFSET_OUT_OF_RANGE


class LogFailedError(RecordsError):
    """The disk failed under this log; it has to be opened again."""

    code = Code.KAFKA_STORAGE_ERROR


class FencedError(RecordsError):
    """Of a leader epoch that is over."""

    code = Code.FENCED_LEADER_EPOCH


class UnknownEpochError(RecordsError):
    """Of a leader epoch that this broker was not told of yet."""

    code = Code.UNKNOWN_LEADER_EPOCH


class StaleFollowerError(RecordsError):
    """It follows no more, or another incarnation of it does."""

    code = Code.STALE_BROKER_EPOCH


class NotEnoughReplicasError(RecordsError):
    """Fewer in the ISR than `min.insync.replicas`: nothing was written."""

    code = Code.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(RecordsError):
    """Written, and fewer in the ISR since."""

    code = Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class NotLeaderError(RecordsError):
    """Another broker leads, or none, or this one is not ready to."""

    code = Code.NOT_LEADER_OR_FOLLOWER


class UnknownPartitionError(RecordsError):
    """There is no such partition here."""

    code = Code.UNKNOWN_TOPIC_OR_PARTITION
