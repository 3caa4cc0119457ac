import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import kafka.cluster.Broker;
import kafka.controller.ControllerState;
import kafka.controller.KafkaController;
import kafka.server.BrokerFeatures;
import kafka.server.DelegationTokenManager;
import kafka.server.FinalizedFeatureChangeListener;
import kafka.server.KafkaConfig;
import kafka.server.KafkaServer;
import kafka.server.MetadataCache;
import kafka.server.metadata.ZkMetadataCache;
import kafka.zk.BrokerInfo;
import kafka.zk.KafkaZkClient;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.Time;
import scala.Option;
import scala.runtime.BoxedUnit;

/**
 * Apache Kafka's own controller without a broker around it: what a broker does beside it would only cost it time.
 *
 * Usage: java -cp 'LIBS/*' KafkaPeer.java HOST:PORT LOG_DIR. A line of input "start" has it race for the seat, "stop" has
 * it resign and race no more, "settle" waits until it has no event left to handle, "shutdown ID EPOCH" says that a broker
 * asks to leave; each is answered by a line. The JVM, and so what it has compiled, stays.
 */
public class KafkaPeer {
    static final int BROKER_ID = 1000; // it is registered nowhere

    /** A broker's controlled shutdown, until it is answered. */
    static void shutDown(KafkaController controller, String[] order) throws InterruptedException {
        CountDownLatch answered = new CountDownLatch(1);
        controller.controlledShutdown(Integer.parseInt(order[1]), Long.parseLong(order[2]), answer -> {
            if (answer.isFailure()) {
                System.err.println(answer);
                System.exit(1);
            }
            answered.countDown();
            return BoxedUnit.UNIT;
        });
        answered.await();
    }

    /**
     * Until its queue of events is empty. The one about its own claim waits there until the failover is over, and looks
     * at the seat only then: finding it empty, it resigns for good, since nobody tells it again that the seat was left.
     */
    static void settle(KafkaController controller) throws InterruptedException {
        while (!controller.eventManager().isEmpty() || controller.eventManager().state() != ControllerState.Idle$.MODULE$) {
            Thread.sleep(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("broker.id", String.valueOf(BROKER_ID));
        properties.put("reserved.broker.max.id", String.valueOf(BROKER_ID));
        properties.put("zookeeper.connect", arguments[0]);
        properties.put("log.dirs", arguments[1]);
        properties.put("listeners", "PLAINTEXT://127.0.0.1:1"); // nobody listens: a controller is told nothing
        properties.put("auto.leader.rebalance.enable", "false"); // off on our side, too: no row is about it
        KafkaConfig config = KafkaConfig.fromProps(properties);
        Time time = Time.SYSTEM;
        KafkaZkClient zk = KafkaZkClient.createZkClient(
            "peer", time, config, KafkaServer.zkClientConfigFromKafkaConfig(config, false));
        BrokerFeatures features = BrokerFeatures.createEmpty();
        ZkMetadataCache cache = MetadataCache.zkMetadataCache(
            BROKER_ID, config.interBrokerProtocolVersion(), features, false);
        new FinalizedFeatureChangeListener(cache, zk).initOrThrow(config.zkConnectionTimeoutMs());
        DelegationTokenManager tokens = new DelegationTokenManager(config, new DelegationTokenCache(new java.util.HashSet<>()), time);
        Broker self = new Broker(
            BROKER_ID, "127.0.0.1", 1, new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
        BrokerInfo info = BrokerInfo.apply(self, config.interBrokerProtocolVersion(), -1);

        System.out.println("ready");
        KafkaController controller = null;
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if (order.equals("start")) {
                controller = new KafkaController(
                    config, zk, time, new Metrics(), info, 0L, tokens, features, cache, Option.empty());
                controller.startup();
            } else if (order.equals("stop") && controller != null) {
                controller.shutdown();
                controller = null;
            }
            if (order.equals("settle") && controller != null) {
                settle(controller);
            }
            if (order.startsWith("shutdown ") && controller != null) {
                shutDown(controller, order.split(" "));
            }
            System.out.println(order);
        }
        System.exit(0);
    }
}
