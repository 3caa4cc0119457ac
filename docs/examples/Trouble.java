// What Kafka's Java client does when its cluster has trouble. With the jars of kafka-clients in a folder:
//   klamm up && java -cp 'jars/*' docs/examples/Trouble.java 127.0.0.1:9091,127.0.0.1:9092 http://127.0.0.1:8080
// The first argument is what `klamm up` prints as bootstrap servers, the second the address of the lab's supervisor.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Trouble {
    static final long DEADLINE_MS = 120_000;
    static String servers;
    static String supervisor;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        supervisor = arguments[1];
        aProducerWhoseAnswersAreLostWritesNothingTwice();
        aLeaderThatMovesInTheMiddleOfBatchesLosesAndReordersNothing();
        aConsumerNoticesThatWhatItReadWasTruncated();
        System.out.println("all of it held");
    }

    static void aProducerWhoseAnswersAreLostWritesNothingTwice() throws Exception {
        String topic = newTopic("java-lost-answers");
        trouble("lost-answers", topic);
        write(topic, 100);
        check(read(topic, 100).equals(numbers(100)), "every record once, in order");
    }

    static void aLeaderThatMovesInTheMiddleOfBatchesLosesAndReordersNothing() throws Exception {
        String topic = newTopic("java-move-leader");
        Thread moving = new Thread(() -> trouble("move-leader", topic));
        moving.start();
        write(topic, 20_000);
        moving.join();
        check(read(topic, 20_000).equals(numbers(20_000)), "every record once, in order");
    }

    // With auto.offset.reset=none the consumer says so, instead of going on from somewhere else.
    static void aConsumerNoticesThatWhatItReadWasTruncated() throws Exception {
        String topic = newTopic("java-truncation");
        AtomicBoolean isOver = new AtomicBoolean();
        Thread writing = new Thread(() -> writeAllTheTime(topic, isOver));
        Thread troubling = new Thread(() -> trouble("unclean-election", topic));
        boolean hasNoticed = false;
        try (KafkaConsumer<String, String> consumer = consumer(topic)) {
            writing.start();
            troubling.start();
            long end = System.currentTimeMillis() + DEADLINE_MS;
            while (!hasNoticed && System.currentTimeMillis() < end) {
                try {
                    consumer.poll(Duration.ofMillis(100));
                } catch (LogTruncationException truncated) {
                    hasNoticed = true;
                }
            }
        }
        isOver.set(true);
        writing.join();
        troubling.join();
        check(hasNoticed, "a consumer notices that what it read was truncated");
    }

    static void write(String topic, int count) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("all", true)) {
            for (int number = 0; number < count; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, Integer.toString(number))));
            }
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
        }
    }

    static void writeAllTheTime(String topic, AtomicBoolean isOver) {
        try (KafkaProducer<String, String> producer = producer("1", false)) {
            for (int number = 0; !isOver.get(); number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, Integer.toString(number)));
                Thread.sleep(10);
            }
            producer.close(Duration.ofSeconds(5));
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    static List<String> read(String topic, int count) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(topic)) {
            long end = System.currentTimeMillis() + DEADLINE_MS;
            while (found.size() < count && System.currentTimeMillis() < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
            }
            consumer.poll(Duration.ofSeconds(1)).forEach(record -> found.add(record.value()));
        }
        return found;
    }

    static KafkaProducer<String, String> producer(String acks, boolean isIdempotent) {
        return new KafkaProducer<>(settings(Map.of(
            "acks", acks, "enable.idempotence", Boolean.toString(isIdempotent), "linger.ms", "20",
            "key.serializer", StringSerializer.class.getName(), "value.serializer", StringSerializer.class.getName())));
    }

    // A group is not needed: partitions are assigned.
    static KafkaConsumer<String, String> consumer(String topic) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(Map.of(
            "auto.offset.reset", "none", "enable.auto.commit", "false",
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName())));
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.seek(partition, 0);
        return consumer;
    }

    static Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(more);
        all.put("bootstrap.servers", servers);
        return all;
    }

    static String newTopic(String name) throws Exception {
        try (Admin admin = Admin.create(settings(Map.of()))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 3))).all().get();
        }
        return name;
    }

    // As `klamm trouble KIND --topic TOPIC --partition 0`.
    static void trouble(String kind, String topic) {
        String body = "{\"kind\": \"%s\", \"topic\": \"%s\", \"partition\": 0, \"seed\": \"1\"}".formatted(kind, topic);
        HttpRequest request = HttpRequest.newBuilder(URI.create(supervisor + "/lab/v1/trouble"))
            .header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(body)).build();
        try {
            HttpResponse<String> answer = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build()
                .send(request, HttpResponse.BodyHandlers.ofString());
            check(answer.statusCode() == 200, answer.body());
            System.out.println(answer.body());
        } catch (java.io.IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }

    static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(Integer::toString).collect(Collectors.toList());
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
