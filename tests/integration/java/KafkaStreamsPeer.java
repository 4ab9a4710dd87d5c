import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs topologies in Java's Kafka Streams, for tests that compare another engine with it.
 *
 * <p>Each line of standard input is a request, each line of standard output its answer, both JSON:
 * a case {"topology", "parameters", "records": [[topic, key, value, timestamp], ...]} is answered by a list of
 * [index of the record, topic, key, value, timestamp, headers] with keys and values as hex, in the order in which
 * the topics got them; {"bytes": [[kind, ...], ...]} by a list of hex; {"partitions": [[hex, count], ...]} by a
 * list of [murmur2 hash, partition]; {"partitioner": class, "classes": its folder, "topics": [{"settings", "counts",
 * "keys": [hex, ...]}, ...]} by a list of partitions for each, of all keys at each count; {"description": topology, "parameters"} by a list of one text. Record n has
 * the header "n" with the text n.
 *
 * <p>Caching is off and stores are in memory, so every change is forwarded at once.
 */
public final class KafkaStreamsPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final Serde<String> TEXT = Serdes.String();
    private static final String DEAD_LETTERS = "dead-letters";
    private static final String TOPIC = "flights";

    private KafkaStreamsPeer() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            JsonNode answer;
            if (request.has("bytes")) {
                answer = bytes(request.get("bytes"));
            } else if (request.has("partitions")) {
                answer = partitions(request.get("partitions"));
            } else if (request.has("partitioner")) {
                answer = partitionsBy(request);
            } else if (request.has("description")) {
                answer = description(request);
            } else {
                answer = run(request);
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    // == a case

    private static JsonNode run(JsonNode request) {
        StreamsBuilder builder = new StreamsBuilder();
        List<String> outputs =
                new Topologies(builder, request.get("parameters")).add(request.get("topology").asText());
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "peer");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:0");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        // Else elements without partner are looked for once a second of the wall clock, not of stream time.
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        settings.put(
                StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG,
                LogAndContinueProcessingExceptionHandler.class);
        settings.put(StreamsConfig.ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG, DEAD_LETTERS);
        ArrayNode answer = JSON.createArrayNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings)) {
            Map<String, TestInputTopic<String, String>> inputs = new LinkedHashMap<>();
            Map<String, TestOutputTopic<byte[], byte[]>> topics = new LinkedHashMap<>();
            for (String topic : outputs) {
                topics.put(
                        topic,
                        driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            }
            int index = 0;
            for (JsonNode record : request.get("records")) {
                RecordHeaders headers = new RecordHeaders();
                headers.add("n", Integer.toString(index).getBytes(StandardCharsets.UTF_8));
                inputs.computeIfAbsent(
                                record.get(0).asText(),
                                topic -> driver.createInputTopic(
                                        topic, new StringSerializer(), new StringSerializer()))
                        .pipeInput(new TestRecord<>(
                                text(record.get(1)), text(record.get(2)), headers, record.get(3).asLong()));
                for (Map.Entry<String, TestOutputTopic<byte[], byte[]>> topic : topics.entrySet()) {
                    for (TestRecord<byte[], byte[]> result : topic.getValue().readRecordsToList()) {
                        answer.add(described(index, topic.getKey(), result));
                    }
                }
                index++;
            }
        }
        return answer;
    }

    private static JsonNode description(JsonNode request) {
        StreamsBuilder builder = new StreamsBuilder();
        new Topologies(builder, request.get("parameters")).add(request.get("description").asText());
        return JSON.createArrayNode().add(builder.build().describe().toString());
    }

    private static ArrayNode described(int index, String topic, TestRecord<byte[], byte[]> result) {
        ArrayNode row = JSON.createArrayNode().add(index).add(topic);
        row.add(hex(result.key())).add(hex(result.value())).add(result.timestamp());
        ArrayNode headers = row.addArray();
        for (Header header : result.headers()) {
            headers.addArray().add(header.key()).add(new String(header.value(), StandardCharsets.UTF_8));
        }
        return row;
    }

    private static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    private static String hex(byte[] data) {
        return data == null ? null : HEX.formatHex(data);
    }

    // == bytes and partitions

    private static JsonNode bytes(JsonNode requests) {
        ArrayNode answer = JSON.createArrayNode();
        for (JsonNode request : requests) {
            JsonNode value = request.get(1);
            byte[] data = switch (request.get(0).asText()) {
                case "int32" -> Serdes.Integer().serializer().serialize("", value.intValue());
                case "int64" -> Serdes.Long().serializer().serialize("", value.longValue());
                case "double" -> Serdes.Double().serializer().serialize("", Double.valueOf(value.asText()));
                case "string" -> TEXT.serializer().serialize("", value.asText());
                case "bytes" -> Serdes.Bytes().serializer().serialize("", Bytes.wrap(HEX.parseHex(value.asText())));
                case "time_windowed" -> new TimeWindowedSerializer<>(new StringSerializer())
                        .serialize("", new Windowed<>(
                                value.asText(),
                                new TimeWindow(request.get(2).asLong(), request.get(3).asLong())));
                case "session_windowed" -> new SessionWindowedSerializer<>(new StringSerializer())
                        .serialize("", new Windowed<>(
                                value.asText(),
                                new SessionWindow(request.get(2).asLong(), request.get(3).asLong())));
                default -> throw new IllegalArgumentException(request.toString());
            };
            answer.add(hex(data));
        }
        return answer;
    }

    private static JsonNode partitions(JsonNode requests) {
        ArrayNode answer = JSON.createArrayNode();
        for (JsonNode request : requests) {
            byte[] key = HEX.parseHex(request.get(0).asText());
            answer.addArray()
                    .add(Utils.murmur2(key))
                    .add(BuiltInPartitioner.partitionForKey(key, request.get(1).asInt()));
        }
        return answer;
    }

    private static JsonNode partitionsBy(JsonNode request) throws Exception {
        ArrayNode answer = JSON.createArrayNode();
        URL[] classes = {Path.of(request.get("classes").asText()).toUri().toURL()};
        try (URLClassLoader loader = new URLClassLoader(classes)) {
            Class<?> type = loader.loadClass(request.get("partitioner").asText());
            for (JsonNode topic : request.get("topics")) {
                Partitioner partitioner = (Partitioner) type.getDeclaredConstructor().newInstance();
                partitioner.configure(JSON.convertValue(topic.get("settings"), new TypeReference<Map<String, String>>() {}));
                ArrayNode found = answer.addArray();
                for (JsonNode count : topic.get("counts")) {
                    Cluster cluster = cluster(count.asInt());
                    for (JsonNode key : topic.get("keys")) {
                        byte[] data = key.isNull() ? null : HEX.parseHex(key.asText());
                        found.add(partitioner.partition(TOPIC, data, data, null, null, cluster));
                    }
                }
            }
        }
        return answer;
    }

    private static Cluster cluster(int partitions) {
        List<PartitionInfo> found = new ArrayList<>();
        for (int number = 0; number < partitions; number++) {
            found.add(new PartitionInfo(TOPIC, number, Node.noNode(), new Node[0], new Node[0]));
        }
        return new Cluster("peer", List.of(), found, Set.of(), Set.of());
    }

    /** Gives records twice, with another header, or with a later time: by their values, under their keys. */
    private static final class Changing extends ContextualFixedKeyProcessor<String, String, String> {
        private final boolean twice;
        private final boolean headers;

        Changing(boolean twice, boolean headers) {
            this.twice = twice;
            this.headers = headers;
        }

        @Override
        public void process(FixedKeyRecord<String, String> record) {
            int number = Topologies.number(record.value());
            if (twice) {
                context().forward(record);
                context().forward(record.withValue("v" + (number + 1)));
            } else if (headers) {
                byte[] text = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
                context().forward(record.withHeaders(new RecordHeaders(record.headers()).add("number", text)));
            } else {
                context().forward(record.withTimestamp(record.timestamp() + 3 * (number % 4)));
            }
        }
    }

    /** Forwards the times at which it is punctuated, and between them what it gets. */
    private static final class Clock extends ContextualProcessor<String, String, String, String> {
        private final Duration interval;

        Clock(Duration interval) {
            this.interval = interval;
        }

        @Override
        public void init(ProcessorContext<String, String> context) {
            super.init(context);
            context.schedule(
                    interval,
                    PunctuationType.STREAM_TIME,
                    time -> context.forward(new Record<>("time", Long.toString(time), time)));
        }

        @Override
        public void process(Record<String, String> record) {
            context().forward(record);
        }
    }

    /** Adds one topology by name; keys and input values are text, "v" and a number. */
    private static final class Topologies {
        private final StreamsBuilder builder;
        private final JsonNode parameters;
        private final List<String> outputs = new ArrayList<>();

        Topologies(StreamsBuilder builder, JsonNode parameters) {
            this.builder = builder;
            this.parameters = parameters;
        }

        List<String> add(String name) {
            switch (name) {
                case "filter" -> send(in().filter((k, v) -> odd(v)));
                case "filter_not" -> send(in().filterNot((k, v) -> odd(v)));
                case "map" -> send(in().map((k, v) -> KeyValue.pair(v, k)));
                case "map_values" -> send(in().mapValues(v -> v == null ? "none" : v + v));
                case "flat_map" -> send(in().flatMap((k, v) -> copies(k, v)));
                case "flat_map_values" -> send(in().flatMapValues(v -> v == null ? List.of() : List.of(v, v + "'")));
                case "select_key" -> send(in().selectKey((k, v) -> v));
                case "peek" -> send(in().peek((k, v) -> {}));
                case "merge" -> send(in().merge(builder.stream("other")));
                case "repartition" -> send(
                        in().repartition(Repartitioned.<String, String>as("spread").withNumberOfPartitions(2)));
                case "branch" -> branch();
                case "split" -> split();
                case "set_headers" -> send(in().processValues(() -> new Changing(false, true)));
                case "set_timestamp" -> send(redated());
                case "process_values" -> send(in().processValues(() -> new Changing(true, false)));
                case "two_children" -> {
                    KStream<String, String> in = in();
                    in.filter((k, v) -> odd(v)).mapValues(v -> v + "!").to("out");
                    in.to("out");
                    send(in.filterNot((k, v) -> odd(v)));
                }
                case "dead_letter" -> {
                    outputs.add(DEAD_LETTERS);
                    send(in().mapValues(v -> failing(v)));
                }
                case "punctuated" -> send(in().process(() -> new Clock(time("interval"))));
                case "count" -> sendCounts(in().groupByKey().count(counts()));
                case "reduce" -> sendTable(in().groupByKey().reduce(this::reduced, texts()));
                case "aggregate" -> sendTable(in().groupByKey().aggregate(() -> "", this::added, texts()));
                case "group_by_count" -> sendCounts(in().groupBy((k, v) -> group(v)).count(counts()));
                case "group_by_aggregate" ->
                        sendTable(in().groupBy((k, v) -> group(v)).aggregate(() -> "", this::added, texts()));
                case "redated_count" -> sendCounts(redated().groupByKey().count(counts()));
                case "cogroup" -> sendTable(cogrouped().aggregate(() -> "", texts()));
                case "cogroup_tumbling" -> sendWindows(cogrouped()
                        .windowedBy(TimeWindows.ofSizeAndGrace(time("size"), time("grace")))
                        .aggregate(() -> "", texts()));
                case "redated_tumbling_count" -> sendWindowCounts(tumbling(redated().groupByKey()).count(counts()));
                case "sliding_count" -> sendWindowCounts(sliding().count(counts()));
                case "sliding_reduce" -> sendWindows(sliding().reduce(this::reduced, texts()));
                case "sliding_aggregate" -> sendWindows(sliding().aggregate(() -> "", this::added, texts()));
                case "sliding_suppress" ->
                        sendWindows(sliding().aggregate(() -> "", this::added, texts()).suppress(atClose()));
                case "tumbling_count" -> sendWindowCounts(tumbling(grouped()).count(counts()));
                case "tumbling_reduce" -> sendWindows(tumbling(grouped()).reduce(this::reduced, texts()));
                case "tumbling_aggregate" ->
                        sendWindows(tumbling(grouped()).aggregate(() -> "", this::added, texts()));
                case "hopping_count" -> sendWindowCounts(hopping(grouped()).count(counts()));
                case "hopping_aggregate" ->
                        sendWindows(hopping(grouped()).aggregate(() -> "", this::added, texts()));
                case "filtered_tumbling_count" -> sendWindowCounts(
                        tumbling(in().filter((k, v) -> odd(v)).groupByKey()).count(counts()));
                case "tumbling_suppress" -> sendWindows(
                        tumbling(grouped()).aggregate(() -> "", this::added, texts()).suppress(atClose()));
                case "hopping_suppress" -> sendWindows(
                        hopping(grouped()).aggregate(() -> "", this::added, texts()).suppress(atClose()));
                case "session_count" -> sendSessionCounts(sessions().count(counts()));
                case "session_reduce" -> sendSessions(sessions().reduce(this::reduced, texts()));
                case "session_aggregate" -> sendSessions(sessionTexts());
                case "session_suppress" -> sendSessions(sessionTexts().suppress(atClose()));
                case "table" -> sendTable(builder.table("in", texts("table")));
                case "to_table" -> sendTable(in().toTable(texts("store")));
                case "rekeyed_to_table" -> sendTable(in().selectKey((k, v) -> group(v)).toTable(texts("store")));
                case "table_filter" -> sendTable(table("in").filter((k, v) -> odd(v)));
                case "table_filter_not" -> sendTable(table("in").filterNot((k, v) -> odd(v)));
                case "table_filter_kept" -> sendTable(table("in").filter((k, v) -> odd(v), texts("kept")));
                case "table_map_values" -> sendTable(table("in").mapValues(v -> v + v));
                case "table_map_values_filter" ->
                        sendTable(table("in").mapValues(v -> "w" + number(v) / 2).filter((k, v) -> odd(v)));
                case "table_to_stream_by_value" ->
                        send(table("in").toStream((k, v) -> v == null ? "none" : v));
                case "table_group_count" -> sendCounts(byGroup(table("in")).count(counts()));
                case "table_group_reduce" ->
                        sendTable(byGroup(table("in")).reduce(this::put, this::taken, texts("total")));
                case "table_group_aggregate" -> sendTable(byGroup(table("in"))
                        .aggregate(
                                () -> "", (k, v, a) -> put(a, v), (k, v, a) -> deletes(v) ? null : taken(a, v),
                                texts("total")));
                case "tables_join" -> sendTable(table("in").join(table("other"), this::pair));
                case "tables_left_join" -> sendTable(table("in").leftJoin(table("other"), this::pair));
                case "tables_outer_join" -> sendTable(table("in").outerJoin(table("other"), this::pair));
                case "tables_outer_join_kept" ->
                        sendTable(table("in").outerJoin(table("other"), this::pair, texts("kept")));
                case "tables_join_filter" -> sendTable(table("in")
                        .leftJoin(table("other").filter((k, v) -> odd(v)), this::pair)
                        .filter((k, v) -> v.length() % 2 == 0));
                case "tables_join_group" -> sendTable(table("in")
                        .filter((k, v) -> odd(v))
                        .outerJoin(table("other").mapValues(v -> v + "!"), this::pair)
                        .groupBy((k, v) -> KeyValue.pair("g" + v.length() % 3, v), Grouped.with(TEXT, TEXT))
                        .reduce(this::put, this::taken, texts("total")));
                case "tables_of_one_table" -> {
                    KTable<String, String> table = table("in");
                    sendTable(table.filter((k, v) -> odd(v)).join(table.mapValues(v -> v + "!"), this::pair));
                }
                case "count_join" -> {
                    KStream<String, String> in = in();
                    send(in.join(in.groupByKey().count(counts()), (v, count) -> v + "+" + count));
                }
                case "table_join" -> send(in().join(builder.table("other"), this::pair));
                case "table_left_join" -> send(in().leftJoin(builder.table("other"), this::pair));
                case "rekeyed_table_join" ->
                        send(in().selectKey((k, v) -> group(v)).join(builder.table("other"), this::pair));
                case "rekeyed_table_left_join" ->
                        send(in().selectKey((k, v) -> group(v)).leftJoin(builder.table("other"), this::pair));
                case "join" -> send(in().join(other(), this::pair, window(), joined()));
                case "left_join" -> send(in().leftJoin(other(), this::pair, window(), joined()));
                case "outer_join" -> send(in().outerJoin(other(), this::pair, window(), joined()));
                case "self_join" -> {
                    KStream<String, String> in = in();
                    send(in.join(in, this::pair, window(), joined()));
                }
                case "join_count" -> sendCounts(in().join(other(), this::pair, window(), joined())
                        .groupByKey()
                        .count(counts()));
                case "rekeyed_join" -> send(in().selectKey((k, v) -> group(v))
                        .join(other().selectKey((k, v) -> group(v)), this::pair, window(), joined()));
                default -> throw new IllegalArgumentException("no topology " + name);
            }
            return outputs;
        }

        private void branch() {
            outputs.addAll(List.of("out-1", "out-2"));
            in().split()
                    .branch((k, v) -> odd(v), Branched.withConsumer(branch -> branch.to("out-1")))
                    .branch((k, v) -> k != null, Branched.withConsumer(branch -> branch.to("out-2")))
                    .noDefaultBranch();
        }

        private void split() {
            outputs.addAll(List.of("out-1", "out-2"));
            in().split()
                    .branch((k, v) -> odd(v), Branched.withConsumer(branch -> branch.to("out-1")))
                    .defaultBranch(Branched.withConsumer(branch -> branch.to("out-2")));
        }

        // == sources and groups

        private KStream<String, String> in() {
            return builder.stream("in", Consumed.with(TEXT, TEXT));
        }

        private KStream<String, String> other() {
            return builder.stream("other", Consumed.with(TEXT, TEXT));
        }

        private KTable<String, String> table(String topic) {
            return builder.table(topic, texts(topic + "-table"));
        }

        private KGroupedTable<String, String> byGroup(KTable<String, String> table) {
            return table.groupBy((k, v) -> KeyValue.pair(group(v), v), Grouped.with(TEXT, TEXT));
        }

        private KGroupedStream<String, String> grouped() {
            return in().groupByKey(Grouped.with(TEXT, TEXT));
        }

        private TimeWindowedKStream<String, String> tumbling(KGroupedStream<String, String> grouped) {
            return grouped.windowedBy(TimeWindows.ofSizeAndGrace(time("size"), time("grace")));
        }

        private TimeWindowedKStream<String, String> hopping(KGroupedStream<String, String> grouped) {
            return grouped.windowedBy(
                    TimeWindows.ofSizeAndGrace(time("size"), time("grace")).advanceBy(time("advance")));
        }

        private TimeWindowedKStream<String, String> sliding() {
            return grouped().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(time("size"), time("grace")));
        }

        private KStream<String, String> redated() {
            return in().processValues(() -> new Changing(false, false));
        }

        private CogroupedKStream<String, String> cogrouped() {
            return grouped().<String>cogroup(this::added)
                    .cogroup(
                            other().groupByKey(Grouped.with(TEXT, TEXT)),
                            (key, value, aggregate) -> added(key, value + "'", aggregate));
        }

        private SessionWindowedKStream<String, String> sessions() {
            return grouped().windowedBy(
                    SessionWindows.ofInactivityGapAndGrace(time("gap"), time("grace")));
        }

        private KTable<Windowed<String>, String> sessionTexts() {
            return sessions().aggregate(
                    () -> "", this::added, this::merged, texts());
        }

        private JoinWindows window() {
            return JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, time("grace"))
                    .before(time("right"))
                    .after(time("left"));
        }

        private StreamJoined<String, String, String> joined() {
            return StreamJoined.with(TEXT, TEXT, TEXT);
        }

        private Duration time(String parameter) {
            return Duration.ofMillis(parameters.get(parameter).asLong());
        }

        private static <K> Suppressed<K> atClose() {
            @SuppressWarnings("unchecked")
            Suppressed<K> suppressed = (Suppressed<K>) Suppressed.untilWindowCloses(BufferConfig.unbounded());
            return suppressed;
        }

        private static <S extends StateStore> Materialized<String, Long, S> counts() {
            return Materialized.<String, Long, S>with(TEXT, Serdes.Long()).withCachingDisabled();
        }

        private static <S extends StateStore> Materialized<String, String, S> texts() {
            return Materialized.<String, String, S>with(TEXT, TEXT).withCachingDisabled();
        }

        /** A table is kept in a store only where the store has a name. */
        private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> texts(String store) {
            return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(store)
                    .withKeySerde(TEXT)
                    .withValueSerde(TEXT)
                    .withCachingDisabled();
        }

        // == sinks

        private void send(KStream<String, String> stream) {
            outputs.add("out");
            stream.to("out", Produced.with(TEXT, TEXT));
        }

        private void sendTable(KTable<String, String> table) {
            send(table.toStream());
        }

        private void sendCounts(KTable<String, Long> table) {
            outputs.add("out");
            table.toStream().to("out", Produced.with(TEXT, Serdes.Long()));
        }

        private <V> void sendWindowed(
                KTable<Windowed<String>, V> table, Serde<Windowed<String>> keys, Serde<V> values) {
            outputs.add("out");
            table.toStream().to("out", Produced.with(keys, values));
        }

        private void sendWindows(KTable<Windowed<String>, String> table) {
            sendWindowed(table, WindowedSerdes.timeWindowedSerdeFrom(String.class, time("size").toMillis()), TEXT);
        }

        private void sendWindowCounts(KTable<Windowed<String>, Long> table) {
            sendWindowed(
                    table, WindowedSerdes.timeWindowedSerdeFrom(String.class, time("size").toMillis()), Serdes.Long());
        }

        private void sendSessions(KTable<Windowed<String>, String> table) {
            sendWindowed(table, WindowedSerdes.sessionWindowedSerdeFrom(String.class), TEXT);
        }

        private void sendSessionCounts(KTable<Windowed<String>, Long> table) {
            sendWindowed(table, WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long());
        }

        // == what users would write; the numbers of values decide, so both engines do the same

        private static int number(String value) {
            return value == null ? 0 : Integer.parseInt(value.replace("'", "").substring(1));
        }

        private static String failing(String value) {
            if (number(value) % 3 == 0) {
                throw new IllegalArgumentException("no thirds");
            }
            return value;
        }

        private static boolean odd(String value) {
            return number(value) % 2 == 1;
        }

        private static String group(String value) {
            return value == null || number(value) % 7 == 0 ? null : "g" + number(value) % 3;
        }

        private static List<KeyValue<String, String>> copies(String key, String value) {
            List<KeyValue<String, String>> copies = new ArrayList<>();
            for (int copy = 0; copy < number(value) % 3; copy++) {
                copies.add(KeyValue.pair(copy == 0 ? key : "copy", value));
            }
            return copies;
        }

        /** A fifth of all values delete the aggregate, where parameters ask for it. */
        private boolean deletes(String value) {
            return parameters.path("deletes").asBoolean() && number(value) % 5 == 4;
        }

        private String reduced(String reduced, String value) {
            return deletes(value) ? null : reduced + "," + value;
        }

        private String added(String key, String value, String aggregate) {
            return deletes(value) ? null : aggregate + "," + value;
        }

        private String put(String total, String value) {
            return total + "+" + value;
        }

        private String taken(String total, String value) {
            return total + "-" + value;
        }

        /** The initial value changes nothing, as Kafka Streams asks of a merger. */
        private String merged(String key, String earlier, String later) {
            return earlier.isEmpty() ? later : "(" + earlier + "|" + later + ")";
        }

        private String pair(String left, String right) {
            return left + "+" + right;
        }
    }
}
