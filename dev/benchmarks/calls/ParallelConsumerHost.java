import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.PollContext;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes calls in Confluent's Parallel Consumer; each call measures itself. Each line of standard input is a request,
 * each line of standard output its answer, both JSON; requests have no objects within.
 *
 * <p>It never stops by itself, so a run lasts until as many results as were asked for are acknowledged; what it does
 * after that, committing offsets for example, counts for nothing.
 */
public final class ParallelConsumerHost {
    private static final long PATIENCE_SECONDS = 120;

    private ParallelConsumerHost() {}

    private record Request(Map<String, String> fields) {
        private static final Pattern FIELD = Pattern.compile("\"(\\w+)\": (?:\"((?:[^\"\\\\]|\\\\.)*)\"|([-\\d.]+))");

        static Request of(String line) {
            Map<String, String> fields = new HashMap<>();
            for (Matcher field = FIELD.matcher(line); field.find(); ) {
                fields.put(field.group(1), field.group(2) != null ? field.group(2) : field.group(3));
            }
            return new Request(fields);
        }

        String text(String name) {
            return Objects.requireNonNull(fields.get(name), name);
        }

        int number(String name) {
            return Integer.parseInt(text(name));
        }

        boolean is(String variant) {
            return text("system").endsWith(variant);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("{\"ready\":true}");
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(new Run(Request.of(line)).answer());
            out.flush();
        }
    }

    /** One run. */
    private static final class Run {
        private final Request request;
        private final long sleepNanos;
        private final String output;
        private final AtomicLong began = new AtomicLong(Long.MAX_VALUE);
        private final AtomicLong ended = new AtomicLong(Long.MIN_VALUE);
        private final LongAdder took = new LongAdder();
        private final AtomicLong left;
        private final CountDownLatch done = new CountDownLatch(1);

        Run(Request request) {
            this.request = request;
            this.sleepNanos = Math.round(request.number("latency_ms") * 1e6);
            this.output = request.text("output");
            this.left = new AtomicLong(request.number("records"));
        }

        String answer() throws Exception {
            KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(consumerSettings(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
            KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(producerSettings(), new ByteArraySerializer(), new ByteArraySerializer());
            var options = ParallelConsumerOptions.<byte[], byte[]>builder()
                    .consumer(consumer)
                    .ordering(ProcessingOrder.valueOf(request.text("order").toUpperCase(Locale.ROOT)))
                    .maxConcurrency(request.number("in_flight"));
            if (request.is("-transactional")) {
                options.commitMode(CommitMode.PERIODIC_TRANSACTIONAL_PRODUCER);
                options.commitInterval(Duration.ofSeconds(5));
                options.allowEagerProcessingDuringTransactionCommit(true);
            }
            if (!request.is("-unwaited")) {
                options.producer(producer);
            }
            var processor = ParallelStreamProcessor.createEosStreamProcessor(options.build());
            processor.subscribe(List.of(request.text("input")));
            if (request.is("-unwaited")) {
                processor.poll(context -> send(producer, called(context)));
            } else {
                processor.pollAndProduce(this::called, result -> acknowledged());
            }
            boolean complete = done.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
            long all = System.nanoTime();
            processor.closeDrainFirst(Duration.ofSeconds(60));
            producer.close();
            if (!complete) {
                throw new IllegalStateException(left.get() + " results are missing");
            }
            return String.format(
                    Locale.ROOT,
                    "{\"seconds\":%.6f,\"calls_seconds\":%.6f,\"latency_ms\":%.6f}",
                    (all - began.get()) / 1e9,
                    (ended.get() - began.get()) / 1e9,
                    took.sum() / 1e6 / request.number("records"));
        }

        /** The function that is called. */
        private ProducerRecord<byte[], byte[]> called(PollContext<byte[], byte[]> context) {
            long from = System.nanoTime();
            try {
                TimeUnit.NANOSECONDS.sleep(sleepNanos);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            long to = System.nanoTime();
            began.accumulateAndGet(from, Math::min);
            ended.accumulateAndGet(to, Math::max);
            took.add(to - from);
            return new ProducerRecord<>(output, context.key(), context.value());
        }

        private void send(Producer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> result) {
            producer.send(result, (place, error) -> {
                if (error == null) {
                    acknowledged();
                }
            });
        }

        private void acknowledged() {
            if (left.decrementAndGet() == 0) {
                done.countDown();
            }
        }

        private Properties consumerSettings() {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", request.text("bootstrap"));
            settings.put("group.id", request.text("application_id"));
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("isolation.level", "read_committed");
            settings.put("max.poll.records", "2000");
            settings.put("max.partition.fetch.bytes", String.valueOf(4 << 20));
            return settings;
        }

        private Properties producerSettings() {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", request.text("bootstrap"));
            settings.put("linger.ms", request.is("-unwaited") ? "20" : "0");
            settings.put("batch.size", "1000000");
            settings.put("buffer.memory", String.valueOf(128 << 20));
            settings.put("compression.type", "lz4");
            if (request.is("-transactional")) {
                settings.put("transactional.id", request.text("application_id"));
                settings.put("transaction.timeout.ms", "60000");
            }
            return settings;
        }
    }
}
