import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import com.fasterxml.jackson.module.blackbird.BlackbirdModule;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/**
 * Runs the benchmarks' topologies in Java's Kafka Streams. Each line of standard input is a request, each line of
 * standard output its answer, both JSON.
 *
 * <p>Kafka Streams never stops, so a run lasts from the start of the instance until its group has committed all that
 * it was asked to read. As soon as a stage has processed its last record all of its tasks ask for a commit: nothing of
 * the commit interval is waited for.
 */
public final class KafkaStreamsHost {
    private static final ObjectMapper JSON = new ObjectMapper()
            .registerModule(new BlackbirdModule())
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);
    private static final Serde<String> TEXT = Serdes.String();
    private static final int THREADS = 2;
    private static final long HOUR_MS = 3_600_000L;
    private static final Duration GRACE = Duration.ofSeconds(1);
    private static final ValueJoiner<Event, User, Placed> PLACED =
            (event, user) -> new Placed(event.id, event.amount * 100, user.city);
    /** A later stage gets what caches of the stage before let through: how much that is, is not known before. */
    private static final Set<String> CHAINED = Set.of("table_groups", "foreign_key");

    /** The store in memory looks at every moment at which a window of any key begins, or a session ends. */
    private static final Set<String> SLOW_IN_MEMORY = Set.of("sliding", "session");

    private KafkaStreamsHost() {}

    // Read and written in this order of fields.

    public static final class Event {
        public long id;
        public String user;
        public long amount;
        public String kind;
        public String note;
    }

    public record Slim(long id, String user, long cents) {}

    public record Padded(long id, String user, long cents, String note) {}

    public static final class User {
        public String user;
        public String city;
        public long moves;
    }

    public record Placed(long id, long cents, String city) {}

    public record Group(String group, long cents) {}

    public record Activity(long cents, long moves) {}

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class Flight {
        public String carrier;
        public Long flight;
        public Long dep_delay;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static final class Observation {
        public String time_hour;
    }

    public record Departure(String carrier, Long flight, Long dep_delay, String weather) {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("{\"ready\":true}");
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Took took = new Run(JSON.readTree(line)).took();
            out.println("{\"seconds\":" + took.seconds + ",\"processor_seconds\":" + took.processorSeconds + "}");
            out.flush();
        }
    }

    /** What a run took of time, and of this process's processor time. */
    private record Took(double seconds, double processorSeconds) {}

    /** Seconds of processor time that this process has had. */
    private static double processorSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    /** One run of one topology. */
    private static final class Run {
        private final JsonNode request;
        private final long target;
        private final List<Stage> stages = new ArrayList<>();
        private final CountDownLatch done = new CountDownLatch(1);
        private final AtomicReference<Throwable> failure = new AtomicReference<>();
        private volatile boolean quiet;
        private double seen;

        Run(JsonNode request) {
            this.request = request;
            this.target = request.get("records").asLong();
        }

        Took took() throws Exception {
            // Looks at what is committed, and is no part of a run.
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", text("bootstrap")))) {
                admin.describeCluster().clusterId().get();
                double had = processorSeconds();
                long started = System.nanoTime();
                KafkaStreams streams = new KafkaStreams(topology(), settings());
                streams.setUncaughtExceptionHandler(error -> {
                    failure.set(error);
                    done.countDown();
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
                streams.setStateListener((state, before) -> {
                    if (target == 0 && state == KafkaStreams.State.RUNNING) {
                        done.countDown();
                    }
                });
                streams.start();
                done.await();
                while (failure.get() == null && !committed(admin)) {
                    Thread.sleep(5);
                    quiet = CHAINED.contains(text("topology")) && isQuiet(streams);
                }
                // Closing is no part of a run: a service goes on.
                Took took = new Took((System.nanoTime() - started) / 1e9, processorSeconds() - had);
                close(streams);
                if (failure.get() != null) {
                    throw new IllegalStateException(failure.get());
                }
                return took;
            }
        }

        /** Whether nothing was processed since the last look. */
        private boolean isQuiet(KafkaStreams streams) {
            double before = seen;
            seen = streams.metrics().values().stream()
                    .filter(metric -> metric.metricName().group().equals("stream-thread-metrics")
                            && metric.metricName().name().equals("process-total"))
                    .mapToDouble(metric -> (double) metric.metricValue())
                    .sum();
            return seen == before;
        }

        /** A thread that is closed amid a rebalance spins until its session times out, so that is waited for. */
        private void close(KafkaStreams streams) throws InterruptedException {
            for (int tries = 0; tries < 500 && failure.get() == null && !settled(streams); tries++) {
                Thread.sleep(20);
            }
            // Else the next instance waits until this one's session times out, which is no part of a run.
            streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
                    .withTimeout(Duration.ofSeconds(60)));
        }

        private boolean settled(KafkaStreams streams) {
            boolean idle = request.get("partitions").asInt() < THREADS;
            return streams.state() == KafkaStreams.State.RUNNING
                    && streams.metadataForLocalThreads().stream()
                            .allMatch(thread -> thread.threadState().equals("RUNNING")
                                    && (idle || !thread.activeTasks().isEmpty()));
        }

        /** Whether every task of every stage has asked for a commit, and has got it. */
        private boolean committed(Admin admin) throws Exception {
            if (target == 0) {
                return true;
            }
            Map<TopicPartition, Long> ends = new HashMap<>();
            for (Counter<?> counter : stages.stream().flatMap(stage -> stage.counters.stream()).toList()) {
                if (!counter.asked) {
                    return false;
                }
                if (counter.partition != null) {
                    ends.put(counter.partition, counter.end);
                }
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(text("application_id"))
                    .partitionsToOffsetAndMetadata()
                    .get();
            // What lies between stages is looked up last: whatever is committed by then has been read.
            return areCovered(ends, offsets)
                    && (!CHAINED.contains(text("topology")) || areCovered(endsBetween(admin), offsets));
        }

        private static boolean areCovered(
                Map<TopicPartition, Long> ends, Map<TopicPartition, OffsetAndMetadata> offsets) {
            return ends.entrySet().stream().allMatch(end -> {
                OffsetAndMetadata offset = offsets.get(end.getKey());
                return end.getValue() == 0 || offset != null && offset.offset() >= end.getValue();
            });
        }

        /** The ends of the topics between stages. */
        private Map<TopicPartition, Long> endsBetween(Admin admin) throws Exception {
            Map<TopicPartition, OffsetSpec> wanted = admin.listTopics().names().get().stream()
                    .filter(name -> name.startsWith(text("application_id"))
                            && !name.endsWith("-changelog")
                            && !name.equals(text("output")))
                    .flatMap(name -> IntStream.range(0, request.get("partitions").asInt())
                            .mapToObj(number -> new TopicPartition(name, number)))
                    .collect(Collectors.toMap(each -> each, each -> OffsetSpec.latest()));
            return admin.listOffsets(wanted, new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).all().get()
                    .entrySet()
                    .stream()
                    .collect(Collectors.toMap(Map.Entry::getKey, end -> end.getValue().offset()));
        }

        private Properties settings() {
            Properties settings = new Properties();
            settings.put(StreamsConfig.APPLICATION_ID_CONFIG, text("application_id"));
            settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, text("bootstrap"));
            settings.put(StreamsConfig.STATE_DIR_CONFIG, text("folder"));
            settings.put(
                    StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                    text("guarantee").equals("exactly_once")
                            ? StreamsConfig.EXACTLY_ONCE_V2
                            : StreamsConfig.AT_LEAST_ONCE);
            settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, THREADS);
            // With exactly once, the second stage sees nothing before the first has committed.
            boolean staged = CHAINED.contains(text("topology")) || text("topology").equals("two_stage");
            settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, staged ? 1_000 : 5_000);
            settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
            if (!text("system").endsWith("-plain")) {
                tune(settings);
            }
            return settings;
        }

        private void tune(Properties settings) {
            if (!SLOW_IN_MEMORY.contains(text("topology"))) {
                settings.put(
                        StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                        BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
            }
            settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 512L << 20);
            settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 10_000);
            settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 10_000);
            settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 4 << 20);
            settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 20);
            settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 1_000_000);
            settings.put(StreamsConfig.producerPrefix(ProducerConfig.BUFFER_MEMORY_CONFIG), 128L << 20);
            settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), text("codec"));
            settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 60_000);
        }

        private String text(String name) {
            return request.get(name).asText();
        }

        // == topologies

        private Topology topology() {
            StreamsBuilder builder = new StreamsBuilder();
            Stage first = stage();
            switch (text("topology")) {
                case "stateless" -> write(
                        events(builder, first)
                                .filter((key, event) -> event.amount % 10 != 0)
                                .mapValues(event -> new Slim(event.id, event.user, event.amount * 100)),
                        Slim.class);
                case "padded" -> write(
                        events(builder, first)
                                .filter((key, event) -> event.amount % 10 != 0)
                                .mapValues(event ->
                                        new Padded(event.id, event.user, event.amount * 100, event.note)),
                        Padded.class);
                case "sum_by_key" -> write(
                        grouped(builder, first)
                                .aggregate(() -> 0L, Run::added, Materialized.with(TEXT, json(Long.class)))
                                .toStream(),
                        Long.class);
                case "two_stage" -> write(
                        events(builder, first)
                                .map((key, event) -> KeyValue.pair(event.kind + "-" + event.amount, event.amount))
                                .repartition(Repartitioned.with(TEXT, json(Long.class)))
                                .processValues(stage().<Long>counted())
                                .groupByKey(Grouped.with(TEXT, json(Long.class)))
                                .reduce(Long::sum, Materialized.with(TEXT, json(Long.class)))
                                .toStream(),
                        Long.class);
                case "join" -> write(
                        stream(builder, first, "flights", Flight.class)
                                .join(
                                        stream(builder, first, "weather", Observation.class),
                                        (flight, observation) -> new Departure(
                                                flight.carrier,
                                                flight.flight,
                                                flight.dep_delay,
                                                observation.time_hour),
                                        JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofHours(1))
                                                .before(Duration.ofMillis(HOUR_MS - 1)),
                                        StreamJoined.with(TEXT, json(Flight.class), json(Observation.class))),
                        Departure.class);
                case "stream_table" -> write(
                        events(builder, first).join(table(builder, first, "users", User.class), PLACED), Placed.class);
                case "tables" -> write(
                        table(builder, first, "events", Event.class)
                                .join(table(builder, first, "users", User.class), PLACED)
                                .toStream(),
                        Placed.class);
                case "foreign_key" -> write(
                        table(builder, first, "events", Event.class)
                                .join(
                                        table(builder, first, "users", User.class),
                                        (user, event) -> user.substring(0, user.length() - 2) + "00",
                                        PLACED)
                                .toStream(),
                        Placed.class);
                case "table_groups" -> write(
                        table(builder, first, "events", Event.class)
                                .filter((user, event) -> event.amount % 10 != 0)
                                .mapValues(event -> new Group(event.kind + "-" + event.amount % 100, event.amount * 100))
                                .groupBy(
                                        (user, group) -> KeyValue.pair(group.group, group.cents),
                                        Grouped.with(TEXT, json(Long.class)))
                                .aggregate(
                                        () -> 0L,
                                        (group, cents, total) -> total + cents,
                                        (group, cents, total) -> total - cents,
                                        Materialized.with(TEXT, json(Long.class)))
                                .toStream()
                                .processValues(stage(0).<Long>counted()),
                        Long.class);
                case "cogroup" -> write(
                        grouped(builder, first)
                                .<Activity>cogroup((user, event, seen) ->
                                        new Activity(seen.cents + event.amount * 100, seen.moves))
                                .cogroup(
                                        stream(builder, first, "users", User.class)
                                                .groupByKey(Grouped.with(TEXT, json(User.class))),
                                        (name, user, seen) -> new Activity(seen.cents, seen.moves + 1))
                                .aggregate(
                                        () -> new Activity(0, 0), Materialized.with(TEXT, json(Activity.class)))
                                .toStream(),
                        Activity.class);
                case "tumbling" -> grouped(builder, first)
                        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(20), GRACE))
                        .aggregate(() -> 0L, Run::added, Materialized.with(TEXT, json(Long.class)))
                        .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                        .toStream()
                        .to(text("output"), windowed(Duration.ofSeconds(20)));
                case "sliding" -> grouped(builder, first)
                        .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(4), GRACE))
                        .aggregate(() -> 0L, Run::added, Materialized.with(TEXT, json(Long.class)))
                        .toStream()
                        .to(text("output"), windowed(Duration.ofSeconds(4)));
                case "session" -> grouped(builder, first)
                        .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(3), GRACE))
                        .aggregate(
                                () -> 0L,
                                Run::added,
                                (user, earlier, later) -> earlier + later,
                                Materialized.with(TEXT, json(Long.class)))
                        .toStream()
                        .to(
                                text("output"),
                                Produced.with(
                                        WindowedSerdes.sessionWindowedSerdeFrom(String.class), json(Long.class)));
                default -> throw new IllegalArgumentException(request.toString());
            }
            return builder.build();
        }

        private <V> KStream<String, V> stream(StreamsBuilder builder, Stage stage, String name, Class<V> type) {
            return builder.stream(request.get("inputs").get(name).asText(), Consumed.with(TEXT, json(type)))
                    .processValues(stage.<V>counted());
        }

        private KStream<String, Event> events(StreamsBuilder builder, Stage stage) {
            return stream(builder, stage, "events", Event.class);
        }

        private KGroupedStream<String, Event> grouped(StreamsBuilder builder, Stage stage) {
            return events(builder, stage).groupByKey(Grouped.with(TEXT, json(Event.class)));
        }

        /** A topic as a table whose changelog is its own, as that of every other system's tables. */
        private <V> KTable<String, V> table(StreamsBuilder builder, Stage stage, String name, Class<V> type) {
            return stream(builder, stage, name, type).toTable(Materialized.with(TEXT, json(type)));
        }

        private static long added(String key, Event event, long total) {
            return total + event.amount;
        }

        private <V> void write(KStream<String, V> results, Class<V> type) {
            results.to(text("output"), Produced.with(TEXT, json(type)));
        }

        private static Produced<Windowed<String>, Long> windowed(Duration size) {
            return Produced.with(
                    WindowedSerdes.timeWindowedSerdeFrom(String.class, size.toMillis()), json(Long.class));
        }

        private Stage stage() {
            return stage(target);
        }

        private Stage stage(long expected) {
            stages.add(new Stage(expected));
            return stages.get(stages.size() - 1);
        }

        /** Tasks that together process as many records as are expected, 0 if that is not known. */
        private final class Stage {
            private final long expected;
            private final AtomicLong processed = new AtomicLong();
            private final Set<Counter<?>> counters = ConcurrentHashMap.newKeySet();

            Stage(long expected) {
                this.expected = expected;
            }

            <V> FixedKeyProcessorSupplier<String, V, V> counted() {
                return () -> new Counter<>(this);
            }

            private boolean isThrough() {
                return processed.get() >= expected;
            }

            private void add(long count) {
                if (processed.addAndGet(count) == expected && stages.stream().allMatch(Stage::isThrough)) {
                    done.countDown();
                }
            }
        }

        /**
         * Counts what one task of a stage processes; asks for a commit when its stage is through, and where a later
         * stage waits for that, whenever all are quiet.
         */
        private final class Counter<V> extends ContextualFixedKeyProcessor<String, V, V> {
            private final Stage stage;
            private long count;
            private long told;
            // Written before, and read after, the one that is volatile.
            private TopicPartition partition;
            private long end;
            private volatile boolean asked;

            Counter(Stage stage) {
                this.stage = stage;
            }

            @Override
            public void init(FixedKeyProcessorContext<String, V> context) {
                super.init(context);
                stage.counters.add(this);
                context.schedule(Duration.ofMillis(10), PunctuationType.WALL_CLOCK_TIME, time -> {
                    tell();
                    if (stage.isThrough() && (!asked || quiet)) {
                        context.commit();
                        asked = true;
                    }
                });
            }

            @Override
            public void close() {
                // Its task goes on in another thread.
                tell();
                stage.counters.remove(this);
            }

            private void tell() {
                stage.add(count - told);
                told = count;
            }

            @Override
            public void process(FixedKeyRecord<String, V> record) {
                context().forward(record);
                RecordMetadata place = context().recordMetadata().orElseThrow();
                if (partition == null) {
                    partition = new TopicPartition(place.topic(), place.partition());
                }
                end = place.offset() + 1;
                count++;
            }
        }
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = JSON.readerFor(type);
        ObjectWriter writer = JSON.writerFor(type);
        Serializer<T> serializer = (topic, value) -> {
            try {
                return value == null ? null : writer.writeValueAsBytes(value);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        Deserializer<T> deserializer = (topic, data) -> {
            try {
                return data == null ? null : reader.readValue(data);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        return Serdes.serdeFrom(serializer, deserializer);
    }
}
