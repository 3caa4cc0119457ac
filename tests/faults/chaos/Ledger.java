// Kafka's Java client writes numbered records until its input ends; an idempotent producer with acks=all.
//
// java Ledger.java SERVERS TOPIC NAME PARTITIONS. The value of record 7 is "NAME 7", its partition 7 modulo PARTITIONS.
// It prints "sent NUMBER", and "acknowledged PARTITION OFFSET NUMBER"; it ends when each record has its answer.

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Ledger {
    static volatile boolean isOver = false;

    public static void main(String[] words) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", words[0], "acks", "all", "enable.idempotence", "true", "linger.ms", "5",
            "delivery.timeout.ms", "600000", "request.timeout.ms", "5000", "max.block.ms", "600000",
            "reconnect.backoff.max.ms", "500");
        Thread ending = new Thread(Ledger::waitForTheEnd);
        ending.setDaemon(true);
        ending.start();
        int partitions = Integer.parseInt(words[3]);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 1; !isOver; number++) {
                int sent = number;
                say("sent " + sent);
                var record = new ProducerRecord<>(words[1], sent % partitions, (String) null, words[2] + " " + sent);
                producer.send(record, (where, error) -> {
                    if (error == null) {
                        say("acknowledged " + where.partition() + " " + where.offset() + " " + sent);
                    } else {
                        System.err.println("record " + sent + ": " + error);
                        isOver = true;
                    }
                });
                Thread.sleep(20);
            }
            producer.flush();
        }
    }

    static void waitForTheEnd() {
        try {
            while (System.in.read() >= 0) { }
        } catch (java.io.IOException gone) {
            System.err.println("the input is gone: " + gone);
        }
        isOver = true;
    }

    static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
