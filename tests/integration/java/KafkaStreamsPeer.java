import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.IntFunction;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
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
import org.apache.kafka.streams.errors.ErrorHandlerContext;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.errors.ProductionExceptionHandler;
import org.apache.kafka.streams.errors.internals.ExceptionHandlerUtils;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKeySupplier;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.processor.internals.StreamsProducer;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs topologies in Java's Kafka Streams, for tests that compare another engine with it.
 *
 * <p>Each line of standard input is a request, each line of standard output its answer, both JSON:
 * a case {"topology", "parameters", "records": [[topic, key, value, timestamp], ...]} is answered by a list of
 * [index of the record, topic, key, value, timestamp, headers] with keys and values as hex, in the order in which
 * the topics got them;{"bytes": [[kind, ...], ...]} by a list of hex; {"partitions": [[hex, count], ...]} by a
 * list of [murmur2 hash, partition]; {"partitioner": class, "classes": its folder, "topics": [{"settings", "counts",
 * "keys": [hex, ...]}, ...]} by a list of partitions for each, of all keys at each count; {"description": topology, "parameters"} by a list of one text. What fails is
 * answered by {"error"}. Record n has the header "n" with the text n.
 *
 * <p>Stores are in memory. Caching is off, so every change is forwarded at once, unless a program asks for it; the
 * driver then commits after each record.
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
            JsonNode answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (RuntimeException failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                answer = JSON.createObjectNode().put("error", trace.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private static JsonNode answer(JsonNode request) throws Exception {
        if (request.has("bytes")) {
            return bytes(request.get("bytes"));
        }
        if (request.has("partitions")) {
            return partitions(request.get("partitions"));
        }
        if (request.has("partitioner")) {
            return partitionsBy(request);
        }
        return request.has("description") ? description(request) : run(request);
    }

    // == a case

    private static JsonNode run(JsonNode request) {
        StreamsBuilder builder = new StreamsBuilder();
        Programs programs = new Programs(builder, request.path("cached").asBoolean());
        List<String> outputs = request.has("steps")
                ? programs.add(request.get("steps"))
                : new Topologies(builder, request.get("parameters")).add(request.get("topology").asText());
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "peer");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:0");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, request.path("cached").asBoolean() ? 10_000_000 : 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        // Else elements without partner are looked for once a second of the wall clock, not of stream time.
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        String handler = request.has("steps") ? request.path("handler").asText() : "dead-letter";
        if (!handler.isEmpty()) {
            settings.put(
                    StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG,
                    LogAndContinueProcessingExceptionHandler.class);
            settings.put(
                    StreamsConfig.DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueExceptionHandler.class);
            settings.put(StreamsConfig.PRODUCTION_EXCEPTION_HANDLER_CLASS_CONFIG, Continuing.class);
        }
        if (handler.equals("dead-letter")) {
            settings.put(StreamsConfig.ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG, DEAD_LETTERS);
            if (request.has("steps")) {
                outputs.add(DEAD_LETTERS);
            }
        }
        ArrayNode answer = JSON.createArrayNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings)) {
            refuse(driver);
            Map<String, TestInputTopic<byte[], byte[]>> inputs = new LinkedHashMap<>();
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
                                        topic, new ByteArraySerializer(), new ByteArraySerializer()))
                        .pipeInput(new TestRecord<>(
                                data(record.get(1)), data(record.get(2)), headers, record.get(3).asLong()));
                for (Map.Entry<String, TestOutputTopic<byte[], byte[]>> topic : topics.entrySet()) {
                    for (TestRecord<byte[], byte[]> result : topic.getValue().readRecordsToList()) {
                        answer.add(described(index, topic.getKey(), result));
                    }
                }
                programs.tellSeen(index, answer);
                index++;
            }
        }
        return answer;
    }

    /** Lets the producer refuse what topics named small-... do not take: values with an odd last byte. */
    @SuppressWarnings("unchecked")
    private static void refuse(TopologyTestDriver driver) {
        try {
            Field ofDriver = TopologyTestDriver.class.getDeclaredField("testDriverProducer");
            ofDriver.setAccessible(true);
            Field ofStreams = StreamsProducer.class.getDeclaredField("producer");
            ofStreams.setAccessible(true);
            Object streams = ofDriver.get(driver);
            Object real = ofStreams.get(streams);
            InvocationHandler handler = (proxy, method, arguments) -> {
                if (method.getName().equals("send") && refused((ProducerRecord<byte[], byte[]>) arguments[0])) {
                    ((Callback) arguments[1]).onCompletion(null, new RecordTooLargeException("refused"));
                    return null;
                }
                return method.invoke(real, arguments);
            };
            ofStreams.set(
                    streams,
                    Proxy.newProxyInstance(
                            KafkaStreamsPeer.class.getClassLoader(), new Class<?>[] {Producer.class}, handler));
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static boolean refused(ProducerRecord<byte[], byte[]> record) {
        byte[] value = record.value();
        return record.topic().startsWith("small-") && value != null && value[value.length - 1] % 2 != 0;
    }

    /** Leaves results out, with a dead letter if the topic for them has a name. */
    public static final class Continuing implements ProductionExceptionHandler {
        private String letters;

        @Override
        public Response handleError(
                ErrorHandlerContext context, ProducerRecord<byte[], byte[]> record, Exception failure) {
            return resumed(context, failure);
        }

        @Override
        @SuppressWarnings("rawtypes")
        public Response handleSerializationError(
                ErrorHandlerContext context,
                ProducerRecord record,
                Exception failure,
                SerializationExceptionOrigin origin) {
            return resumed(context, failure);
        }

        private Response resumed(ErrorHandlerContext context, Exception failure) {
            return Response.resume(ExceptionHandlerUtils.maybeBuildDeadLetterQueueRecords(
                    letters, context.sourceRawKey(), context.sourceRawValue(), context, failure));
        }

        @Override
        public void configure(Map<String, ?> configs) {
            letters = (String) configs.get(StreamsConfig.ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG);
        }
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

    /** A text in UTF-8, a number as int64. */
    private static byte[] data(JsonNode node) {
        if (node.isNull()) {
            return null;
        }
        return node.isIntegralNumber()
                ? Serdes.Long().serializer().serialize("", node.longValue())
                : TEXT.serializer().serialize("", node.asText());
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
                case "map_values_with_key" -> send(in().mapValues((k, v) -> k + ":" + v));
                case "flat_map_values_with_key" -> send(in().flatMapValues((k, v) -> List.of(k + ":" + v, k + "'")));
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
                case "changed_dead_letter" -> {
                    outputs.add(DEAD_LETTERS);
                    send(redated().processValues(() -> new Changing(false, true)).mapValues(v -> failing(v)));
                }
                case "written_dead_letter" -> {
                    outputs.add(DEAD_LETTERS);
                    KStream<String, String> in = in();
                    in.to("copies");
                    send(in.mapValues(v -> failing(v)));
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
                case "sliding_group" -> sendTable(sliding().aggregate(() -> "", this::added, texts())
                        .groupBy((k, v) -> KeyValue.pair("g", v), Grouped.with(TEXT, TEXT))
                        .reduce(this::put, this::taken, texts("total")));
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
                case "tumbling_emitted" -> sendWindows(tumbling(grouped())
                        .emitStrategy(EmitStrategy.onWindowClose())
                        .aggregate(
                                () -> "",
                                this::added,
                                Topologies.<WindowStore<Bytes, byte[]>>texts().withRetention(time("retention"))));
                case "suppress_group" -> sendTable(
                        tumbling(grouped()).aggregate(() -> "", this::added, texts()).suppress(atClose())
                                .groupBy((k, v) -> KeyValue.pair("g", v), Grouped.with(TEXT, TEXT))
                                .reduce(this::put, this::taken, texts("total")));
                case "hopping_suppress" -> sendWindows(
                        hopping(grouped()).aggregate(() -> "", this::added, texts()).suppress(atClose()));
                case "session_count" -> sendSessionCounts(sessions().count(counts()));
                case "session_reduce" -> sendSessions(sessions().reduce(this::reduced, texts()));
                case "session_aggregate" -> sendSessions(sessionTexts());
                case "session_group" -> sendTable(sessionTexts()
                        .groupBy((k, v) -> KeyValue.pair("g", v), Grouped.with(TEXT, TEXT))
                        .reduce(this::put, this::taken, texts("total")));
                case "session_retained" -> sendSessions(sessions().aggregate(
                        () -> "",
                        this::added,
                        this::merged,
                        Topologies.<SessionStore<Bytes, byte[]>>texts().withRetention(time("retention"))));
                case "session_suppress" -> sendSessions(sessionTexts().suppress(atClose()));
                case "table" -> sendTable(builder.table("in", texts("table")));
                case "to_table" -> sendTable(in().toTable(texts("store")));
                case "rekeyed_to_table" -> sendTable(in().selectKey((k, v) -> group(v)).toTable(texts("store")));
                case "table_filter" -> sendTable(table("in").filter((k, v) -> odd(v)));
                case "table_filter_not" -> sendTable(table("in").filterNot((k, v) -> odd(v)));
                case "table_filter_kept" -> sendTable(table("in").filter((k, v) -> odd(v), texts("kept")));
                case "table_map_values" -> sendTable(table("in").mapValues(v -> v + v));
                case "table_map_values_with_key" -> sendTable(table("in").mapValues((k, v) -> k + ":" + v));
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
                case "foreign_key_join" -> sendTable(byForeignKey());
                case "foreign_key_left_join" ->
                        sendTable(table("in").leftJoin(table("other"), v -> foreign(v), this::pair));
                case "foreign_key_left_join_twice" -> sendTable(table("in")
                        .join(table("other"), v -> foreign(v), (left, right) -> left, texts("kept"))
                        .leftJoin(
                                table("third"), v -> foreign("v" + number(v) / 4), this::pair, texts("joined")));
                case "foreign_key_join_kept" ->
                        sendTable(table("in").leftJoin(table("other"), v -> foreign(v), this::pair, texts("kept")));
                case "foreign_key_join_group" -> sendTable(byForeignKey()
                        .groupBy((k, v) -> KeyValue.pair("g" + v.length() % 3, v), Grouped.with(TEXT, TEXT))
                        .reduce(this::put, this::taken, texts("total")));
                case "count_group" -> sendCounts(in().groupByKey()
                        .count(counts())
                        .groupBy((k, v) -> KeyValue.pair(v % 2 == 1 ? "odd" : "even", v), Grouped.with(TEXT, Serdes.Long()))
                        .count(counts()));
                case "count_join" -> {
                    KStream<String, String> in = in();
                    send(in.join(in.groupByKey().count(counts()), (v, count) -> v + "+" + count));
                }
                case "table_join" -> send(in().join(builder.table("other"), this::pair));
                case "table_join_with_key" -> send(in().join(builder.table("other"), this::pairOfKey));
                case "table_left_join_with_key" -> send(in().leftJoin(builder.table("other"), this::pairOfKey));
                case "global_join_with_key" -> send(in().join(
                        builder.globalTable("other", Consumed.with(TEXT, TEXT)),
                        (k, v) -> foreign(v),
                        this::pairOfKey));
                case "table_left_join" -> send(in().leftJoin(builder.table("other"), this::pair));
                case "global_join" -> send(in().join(
                        builder.globalTable("other", Consumed.with(TEXT, TEXT)), (k, v) -> foreign(v), this::pair));
                case "global_left_join" -> send(in().leftJoin(
                        builder.globalTable("other", Consumed.with(TEXT, TEXT)), (k, v) -> foreign(v), this::pair));
                case "rekeyed_table_join" ->
                        send(in().selectKey((k, v) -> group(v)).join(builder.table("other"), this::pair));
                case "rekeyed_table_left_join" ->
                        send(in().selectKey((k, v) -> group(v)).leftJoin(builder.table("other"), this::pair));
                case "versioned_table" -> sendTable(versioned("in"));
                case "versioned_to_table" -> sendTable(in().toTable(versions("store")));
                case "versioned_filter" -> sendTable(versioned("in").filter((k, v) -> odd(v)).mapValues(v -> v + v));
                case "versioned_filter_kept" ->
                        sendTable(versioned("in").filter((k, v) -> odd(v), texts("kept")));
                case "versioned_filter_versions" ->
                        sendTable(versioned("in").filter((k, v) -> odd(v), versions("kept")));
                case "versioned_join" -> send(in().join(versioned("other"), this::pair));
                case "versioned_left_join" -> send(in().leftJoin(versioned("other"), this::pair));
                case "versioned_filter_join" -> send(in().leftJoin(
                        versioned("other").filter((k, v) -> odd(v)).mapValues(v -> v + v), this::pair));
                case "versioned_kept_join" -> send(in().leftJoin(
                        versioned("other").filter((k, v) -> odd(v), versions("kept")), this::pair));
                case "versioned_group_reduce" ->
                        sendTable(byGroup(versioned("in")).reduce(this::put, this::taken, texts("total")));
                case "versioned_filter_group" -> sendTable(byGroup(versioned("in").filter((k, v) -> odd(v)))
                        .reduce(this::put, this::taken, texts("total")));
                case "versioned_tables_join" -> sendTable(versioned("in").join(versioned("other"), this::pair));
                case "versioned_tables_outer_join" ->
                        sendTable(versioned("in").outerJoin(table("other"), this::pair));
                case "versioned_foreign_key_join" ->
                        sendTable(versioned("in").leftJoin(versioned("other"), v -> foreign(v), this::pair));
                case "join" -> send(in().join(other(), this::pair, window(), joined()));
                case "join_with_key" -> send(in().join(other(), this::pairOfKey, window(), joined()));
                case "outer_join_with_key" -> send(in().outerJoin(other(), this::pairOfKey, window(), joined()));
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

        private KTable<String, String> versioned(String topic) {
            return builder.table(topic, versions(topic + "-table"));
        }

        private Materialized<String, String, KeyValueStore<Bytes, byte[]>> versions(String store) {
            return Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore(store, time("history")))
                    .withKeySerde(TEXT)
                    .withValueSerde(TEXT);
        }

        private KTable<String, String> byForeignKey() {
            return table("in").join(table("other"), v -> foreign(v), this::pair);
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

        private static String foreign(String value) {
            return new String[] {"a", "b", "g0", null}[number(value) % 4];
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

        private String merged(String key, String earlier, String later) {
            return "(" + earlier + "|" + later + ")";
        }

        private String pair(String left, String right) {
            return left + "+" + right;
        }

        private String pairOfKey(String key, String left, String right) {
            return pair(left, right) + "+" + (key == null ? "none" : key);
        }
    }

    /** Builds programs, step by step: the counterpart of tests/support/programs/operators.py, entry by entry. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static final class Programs {
        private final StreamsBuilder builder;
        private final boolean cached;
        private final List<List<Object>> made = new ArrayList<>();
        private final List<String> outputs = new ArrayList<>();
        private final List<String[]> seen = new ArrayList<>();

        Programs(StreamsBuilder builder, boolean cached) {
            this.builder = builder;
            this.cached = cached;
        }

        List<String> add(JsonNode steps) {
            for (JsonNode step : steps) {
                List<Object> taken = new ArrayList<>();
                for (JsonNode ref : step.path("of")) {
                    taken.add(made.get(ref.get(0).asInt()).get(ref.get(1).asInt()));
                }
                Object result = made(step.get("operator").asText(), step.path("arguments"), taken);
                made.add(result instanceof List ? (List<Object>) result : Collections.singletonList(result));
            }
            return outputs;
        }

        /** Adds what peek and foreach saw since the last time. */
        void tellSeen(int index, ArrayNode answer) {
            for (String[] row : seen) {
                answer.addArray()
                        .add(index)
                        .add("seen-" + row[0])
                        .add(hex(row[1].getBytes(StandardCharsets.UTF_8)))
                        .add(hex(row[2].getBytes(StandardCharsets.UTF_8)))
                        .add(0)
                        .addArray();
            }
            seen.clear();
        }

        private Object made(String operator, JsonNode arguments, List<Object> taken) {
            Object first = taken.isEmpty() ? null : taken.get(0);
            KStream<Object, Object> stream = first instanceof KStream ? (KStream<Object, Object>) first : null;
            String name = Integer.toString(made.size());
            switch (operator) {
                case "stream":
                    return builder.stream(arguments.get("topic").asText(), consumed(arguments));
                case "stream_pattern":
                    return builder.stream(Pattern.compile(arguments.get("pattern").asText()), consumed(arguments));
                case "table":
                    return builder.table(
                            arguments.get("topic").asText(),
                            consumed(arguments),
                            stored(arguments.get("value")));
                case "versioned_table":
                    return builder.table(
                            arguments.get("topic").asText(),
                            consumed(arguments),
                            stored(arguments.get("value"), arguments));
                case "filter":
                    return stream.filter((k, v) -> Functions.holds(arguments, k, v), named(arguments));
                case "filter_not":
                    return stream.filterNot((k, v) -> Functions.holds(arguments, k, v), named(arguments));
                case "map":
                    return stream.map((k, v) -> KeyValue.pair(
                            Functions.key(arguments.get("key"), k, v),
                            Functions.value(arguments.get("value"), 0, v)), named(arguments));
                case "map_values":
                    return keyed(arguments)
                            ? stream.mapValues((k, v) -> Functions.keyedValue(arguments, 0, k, v), named(arguments))
                            : stream.mapValues(v -> Functions.value(arguments.get("value"), 0, v), named(arguments));
                case "flat_map":
                    return stream.flatMap((k, v) -> {
                        List<KeyValue<Object, Object>> copies = new ArrayList<>();
                        for (int copy = 0; copy < Functions.copies(arguments.get("copies"), v); copy++) {
                            copies.add(KeyValue.pair(
                                    Functions.key(arguments.get("key"), k, v),
                                    Functions.value(arguments.get("value"), copy, v)));
                        }
                        return copies;
                    }, named(arguments));
                case "flat_map_values":
                    return keyed(arguments)
                            ? stream.flatMapValues(
                                    (k, v) -> Functions.valueCopies(
                                            arguments, v, copy -> Functions.keyedValue(arguments, copy, k, v)),
                                    named(arguments))
                            : stream.flatMapValues(
                                    v -> Functions.valueCopies(
                                            arguments, v, copy -> Functions.value(arguments.get("value"), copy, v)),
                                    named(arguments));
                case "select_key":
                    return stream.selectKey((k, v) -> Functions.key(arguments.get("key"), k, v), named(arguments));
                case "peek":
                    return stream.peek(
                            (k, v) -> seen.add(new String[] {name, Functions.shown(k), Functions.shown(v)}),
                            named(arguments));
                case "foreach":
                    stream.foreach(
                            (k, v) -> seen.add(new String[] {name, Functions.shown(k), Functions.shown(v)}),
                            named(arguments));
                    return "end";
                case "branch":
                    return branches(stream, arguments.get("predicates"), "branch-" + name + "-");
                case "split":
                    return split(stream, arguments, "split-" + name + "-");
                case "with_context":
                    return stream.processValues(
                            () -> new Calling(
                                    (count, record) -> Functions.valueWith(arguments.get("value"), record), null),
                            named(arguments));
                case "stateless_with_context":
                    return inContext(stream, arguments, name);
                case "set_headers":
                    return stream.processValues(() -> new Heading(), named(arguments));
                case "set_timestamp":
                    return stream.processValues(() -> new Dating(arguments), named(arguments));
                case "failing":
                    return failing(stream, arguments);
                case "process_values":
                    return processed(stream, arguments);
                case "merge":
                    return stream.merge((KStream<Object, Object>) taken.get(1), named(arguments));
                case "repartition":
                    return stream.repartition(
                            Repartitioned.with(serde(arguments.get("key")), serde(arguments.get("value")))
                                    .withName("r" + name)
                                    .withNumberOfPartitions(arguments.path("partitions").asInt(1)));
                case "through":
                    stream.to(arguments.get("topic").asText(), produced(arguments));
                    return builder.stream(
                            arguments.get("topic").asText(),
                            Consumed.with(serde(arguments.get("key")), serde(arguments.get("value"))));
                case "group_by_key":
                    return stream.groupByKey(grouped(arguments, "value"));
                case "group_by":
                    return stream.groupBy(
                            (k, v) -> Functions.key(arguments.get("by"), k, v), grouped(arguments, "value"));
                case "tumbling_window":
                    return ((KGroupedStream) first).windowedBy(
                            TimeWindows.ofSizeAndGrace(time(arguments, "size"), time(arguments, "grace")));
                case "hopping_window":
                    return ((KGroupedStream) first).windowedBy(
                            TimeWindows.ofSizeAndGrace(time(arguments, "size"), time(arguments, "grace"))
                                    .advanceBy(time(arguments, "advance")));
                case "sliding_window":
                    return ((KGroupedStream) first).windowedBy(
                            SlidingWindows.ofTimeDifferenceAndGrace(time(arguments, "size"), time(arguments, "grace")));
                case "session_window":
                    return ((KGroupedStream) first).windowedBy(
                            SessionWindows.ofInactivityGapAndGrace(time(arguments, "gap"), time(arguments, "grace")));
                case "count":
                    return counted(first, arguments);
                case "reduce":
                    return reduced(first, arguments);
                case "aggregate":
                    return aggregated(first, arguments);
                case "cogroup":
                    return cogrouped(arguments, taken);
                case "to_table":
                case "versioned_to_table":
                    return arguments.has("name")
                            ? stream.toTable(named(arguments), stored(arguments.get("value"), arguments))
                            : stream.toTable(stored(arguments.get("value"), arguments));
                case "to_stream_by":
                    return ((KTable<Object, Object>) first)
                            .toStream((k, v) -> Functions.key(arguments.get("key"), k, v), named(arguments));
                case "table_filter":
                case "table_filter_not":
                case "table_map_values":
                case "table_transform_values":
                    return derived(operator, (KTable<Object, Object>) first, arguments);
                case "table_group_by":
                    return ((KTable<Object, Object>) first).groupBy(
                            (k, v) -> KeyValue.pair(
                                    Functions.key(arguments.get("by"), k, v),
                                    Functions.value(arguments.get("value"), 0, v)),
                            grouped(arguments, "gives"));
                case "table_count":
                    return ((KGroupedTable) first).count(named(arguments), stored(arguments.get("gives")));
                case "table_reduce":
                    return ((KGroupedTable<Object, Object>) first).reduce(
                            (soFar, value) -> Functions.folded(arguments, soFar, value),
                            (soFar, value) -> Functions.taken(arguments, soFar, value),
                            named(arguments),
                            stored(arguments.get("gives")));
                case "table_aggregate":
                    return ((KGroupedTable<Object, Object>) first).aggregate(
                            () -> Functions.initial(arguments),
                            (k, value, soFar) -> Functions.folded(arguments, soFar, value),
                            (k, value, soFar) -> Functions.taken(arguments, soFar, value),
                            named(arguments),
                            stored(arguments.get("gives")));
                case "tables_join":
                case "tables_left_join":
                case "tables_outer_join":
                    return tablesJoined(
                            operator, (KTable<Object, Object>) first, (KTable<Object, Object>) taken.get(1), arguments);
                case "foreign_key_join":
                case "foreign_key_left_join":
                    return joinedByForeignKey(
                            operator, (KTable<Object, Object>) first, (KTable<Object, Object>) taken.get(1), arguments);
                case "suppress":
                    return ((KTable) first)
                            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())
                                    .withName(arguments.path("name").asText("step-" + made.size())));
                case "to_stream":
                    return ((KTable) first).toStream(named(arguments));
                case "global_table":
                    return builder.globalTable(
                            arguments.get("topic").asText(),
                            Consumed.with(serde(arguments.get("key")), serde(arguments.get("value"))));
                case "table_join":
                case "versioned_join":
                case "table_left_join":
                case "versioned_left_join":
                case "global_join":
                case "global_left_join":
                case "stream_join":
                case "stream_left_join":
                case "stream_outer_join":
                    return valuesJoined(operator, stream, taken.get(1), arguments);
                case "send_to_by":
                    outputs.add(arguments.get("topic").asText());
                    stream.to(
                            arguments.get("topic").asText(),
                            produced(arguments)
                                    .withStreamPartitioner((topic, k, v, partitions) -> Functions.partition(v, partitions)));
                    return "end";
                case "send_to":
                case "send_to_refused":
                    outputs.add(arguments.get("topic").asText());
                    stream.to(arguments.get("topic").asText(), produced(arguments));
                    return "end";
                case "send_to_failing":
                    outputs.add(arguments.get("topic").asText());
                    stream.to(
                            arguments.get("topic").asText(),
                            produced(arguments).withValueSerde(failing(serde(arguments.get("value")), arguments)));
                    return "end";
                default:
                    throw new IllegalArgumentException("no operator " + operator);
            }
        }

        /** The joins of a stream, whose joiner sees the key too if a step says so. */
        private Object valuesJoined(
                String operator, KStream<Object, Object> stream, Object other, JsonNode arguments) {
            ValueJoiner<Object, Object, Object> joiner = (left, right) -> Functions.joined(arguments, left, right);
            ValueJoinerWithKey<Object, Object, Object, Object> keyedJoiner = (key, left, right) ->
                    Functions.numbered(Functions.joined(arguments, left, right), Functions.weight(key));
            boolean keyed = keyed(arguments);
            if (other instanceof GlobalKTable) {
                GlobalKTable<Object, Object> table = (GlobalKTable<Object, Object>) other;
                KeyValueMapper<Object, Object, Object> keyOf = (k, v) -> Functions.key(arguments.get("by"), k, v);
                if (operator.equals("global_join")) {
                    return keyed
                            ? stream.join(table, keyOf, keyedJoiner, named(arguments))
                            : stream.join(table, keyOf, joiner, named(arguments));
                }
                return keyed
                        ? stream.leftJoin(table, keyOf, keyedJoiner, named(arguments))
                        : stream.leftJoin(table, keyOf, joiner, named(arguments));
            }
            if (other instanceof KTable) {
                KTable<Object, Object> table = (KTable<Object, Object>) other;
                Joined<Object, Object, Object> joined = joined(arguments);
                if (operator.endsWith("left_join")) {
                    return keyed ? stream.leftJoin(table, keyedJoiner, joined) : stream.leftJoin(table, joiner, joined);
                }
                return keyed ? stream.join(table, keyedJoiner, joined) : stream.join(table, joiner, joined);
            }
            KStream<Object, Object> right = (KStream<Object, Object>) other;
            JoinWindows windows = joinWindows(arguments);
            StreamJoined<Object, Object, Object> joined = joinedWith(arguments);
            switch (operator) {
                case "stream_join":
                    return keyed
                            ? stream.join(right, keyedJoiner, windows, joined)
                            : stream.join(right, joiner, windows, joined);
                case "stream_left_join":
                    return keyed
                            ? stream.leftJoin(right, keyedJoiner, windows, joined)
                            : stream.leftJoin(right, joiner, windows, joined);
                default:
                    return keyed
                            ? stream.outerJoin(right, keyedJoiner, windows, joined)
                            : stream.outerJoin(right, joiner, windows, joined);
            }
        }

        /** Whether a mapper or joiner of values sees the key too. */
        private static boolean keyed(JsonNode arguments) {
            return arguments.path("keyed").asBoolean();
        }

        private List<Object> branches(KStream<Object, Object> stream, JsonNode predicates, String prefix) {
            BranchedKStream<Object, Object> split = stream.split(Named.as(prefix));
            for (int number = 0; number < predicates.size(); number++) {
                JsonNode predicate = predicates.get(number);
                split = split.branch(
                        (k, v) -> Functions.holds(predicate, k, v), Branched.as(Integer.toString(number)));
            }
            Map<String, KStream<Object, Object>> branches = split.noDefaultBranch();
            List<Object> found = new ArrayList<>();
            for (int number = 0; number < predicates.size(); number++) {
                found.add(branches.get(prefix + number));
            }
            return found;
        }

        private List<Object> split(KStream<Object, Object> stream, JsonNode arguments, String prefix) {
            JsonNode predicates = arguments.get("predicates");
            BranchedKStream<Object, Object> split = stream.split(Named.as(prefix));
            for (int number = 0; number < predicates.size(); number++) {
                JsonNode predicate = predicates.get(number);
                split = split.branch((k, v) -> Functions.holds(predicate, k, v), Branched.as("b" + number));
            }
            boolean rest = arguments.get("default").asBoolean();
            Map<String, KStream<Object, Object>> branches =
                    rest ? split.defaultBranch(Branched.as("rest")) : split.noDefaultBranch();
            List<Object> found = new ArrayList<>();
            for (int number = 0; number < predicates.size(); number++) {
                found.add(branches.get(prefix + "b" + number));
            }
            if (rest) {
                found.add(branches.get(prefix + "rest"));
            }
            return found;
        }

        /** Adds the store of how many records a key had, if a step asks for it; returns its name, or none. */
        private String[] counts(JsonNode arguments) {
            if (!arguments.get("counts").asBoolean()) {
                return new String[0];
            }
            String name = "c" + made.size();
            builder.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), TEXT, Serdes.Long()));
            return new String[] {name};
        }

        /** What Python calls with a record's context: here each is a processor. */
        private Object inContext(KStream<Object, Object> stream, JsonNode arguments, String name) {
            boolean place = arguments.get("place").asBoolean();
            switch (arguments.get("call").asText()) {
                case "filter":
                case "filter_not":
                    boolean holds = arguments.get("call").asText().equals("filter");
                    return stream.processValues(() -> new InContext(place, (number, record) ->
                            Functions.holds(arguments, number, record.key(), record.value()) == holds
                                    ? Collections.singletonList(record.value())
                                    : List.of()), named(arguments));
                case "flat_map_values":
                    return stream.processValues(() -> new InContext(place, (number, record) -> {
                        List<Object> copies = new ArrayList<>();
                        for (int copy = 0; copy < Functions.copies(arguments.get("copies"), record.value()); copy++) {
                            copies.add(Functions.numbered(
                                    Functions.value(arguments.get("value"), copy, record.value()), number));
                        }
                        return copies;
                    }), named(arguments));
                case "peek":
                case "foreach":
                    boolean ends = arguments.get("call").asText().equals("foreach");
                    KStream<Object, Object> looked = stream.processValues(() -> new InContext(place, (number, record) -> {
                        String shown = Functions.shown(record.value());
                        String told = Functions.closes(record.value()) ? shown : shown + "#" + number;
                        seen.add(new String[] {name, Functions.shown(record.key()), told});
                        return ends ? List.of() : Collections.singletonList(record.value());
                    }), named(arguments));
                    return ends ? "end" : looked;
                case "branch":
                case "split":
                    List<Object> branches = new ArrayList<>();
                    JsonNode predicates = arguments.get("predicates");
                    int count = predicates.size() + (arguments.get("default").asBoolean() ? 1 : 0);
                    for (int branch = 0; branch < count; branch++) {
                        int wanted = branch;
                        branches.add(stream.processValues(() -> new InContext(place, (number, record) ->
                                Functions.branch(predicates, number, record.key(), record.value()) == wanted
                                        ? Collections.singletonList(record.value())
                                        : List.of())));
                    }
                    return branches;
                default:
                    return stream.process(() -> new MappedInContext(place, arguments), named(arguments));
            }
        }

        private Object failing(KStream<Object, Object> stream, JsonNode arguments) {
            switch (arguments.get("call").asText()) {
                case "map_values":
                    return stream.mapValues(v -> Functions.checked(arguments, v, v), named(arguments));
                case "filter":
                    return stream.filter((k, v) -> (Boolean) Functions.checked(arguments, v, true), named(arguments));
                case "select_key":
                    return stream.selectKey((k, v) -> Functions.checked(arguments, v, k), named(arguments));
                case "peek":
                    return stream.peek((k, v) -> Functions.checked(arguments, v, null), named(arguments));
                default:
                    return stream.processValues(
                            () -> new Calling(
                                    (count, record) -> Functions.checked(arguments, record.value(), record.value()), null),
                            named(arguments));
            }
        }

        /** A serde that fails to write some values. */
        private static Serde<Object> failing(Serde<Object> serde, JsonNode arguments) {
            return Serdes.serdeFrom(
                    (topic, value) -> value == null
                            ? null
                            : serde.serializer().serialize(topic, Functions.checked(arguments, value, value)),
                    serde.deserializer());
        }

        private Object processed(KStream<Object, Object> stream, JsonNode arguments) {
            String[] stores = counts(arguments);
            String store = stores.length == 0 ? null : stores[0];
            return stream.processValues(
                    () -> new Calling(
                            (count, record) -> {
                                List<Object> copies = new ArrayList<>();
                                for (int copy = 0; copy < Functions.copies(arguments.get("copies"), record.value()); copy++) {
                                    copies.add(Functions.numbered(
                                            Functions.value(arguments.get("value"), copy, record.value()), count));
                                }
                                return copies;
                            },
                            store),
                    named(arguments),
                    stores);
        }

        private Object cogrouped(JsonNode arguments, List<Object> groups) {
            JsonNode folds = arguments.get("folds");
            CogroupedKStream<Object, Object> cogrouped =
                    ((KGroupedStream<Object, Object>) groups.get(0)).cogroup(aggregator(folds.get(0)));
            for (int number = 1; number < groups.size(); number++) {
                cogrouped = cogrouped.cogroup(
                        (KGroupedStream<Object, Object>) groups.get(number), aggregator(folds.get(number)));
            }
            Materialized stored = stored(arguments.get("gives"));
            Initializer<Object> initializer = () -> Functions.initial(arguments);
            JsonNode window = arguments.get("window");
            if (window.isNull()) {
                return cogrouped.aggregate(initializer, named(arguments), stored);
            }
            Duration grace = time(window, "grace");
            switch (window.get("kind").asText()) {
                case "tumbling":
                    return cogrouped
                            .windowedBy(TimeWindows.ofSizeAndGrace(time(window, "size"), grace))
                            .aggregate(initializer, named(arguments), stored);
                case "hopping":
                    return cogrouped
                            .windowedBy(TimeWindows.ofSizeAndGrace(time(window, "size"), grace)
                                    .advanceBy(time(window, "advance")))
                            .aggregate(initializer, named(arguments), stored);
                case "sliding":
                    return cogrouped
                            .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(time(window, "size"), grace))
                            .aggregate(initializer, named(arguments), stored);
                default:
                    return cogrouped
                            .windowedBy(SessionWindows.ofInactivityGapAndGrace(time(window, "gap"), grace))
                            .aggregate(
                                    initializer,
                                    (k, earlier, later) -> Functions.merged(arguments, earlier, later),
                                    named(arguments),
                                    stored);
            }
        }

        private static Aggregator<Object, Object, Object> aggregator(JsonNode fold) {
            return (key, value, soFar) -> Functions.folded(fold, soFar, value);
        }

        private Object derived(String operator, KTable<Object, Object> table, JsonNode arguments) {
            boolean kept = arguments.get("kept").asBoolean();
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> stored =
                    kept ? stored(arguments.get("gives"), arguments) : null;
            Predicate<Object, Object> predicate = (k, v) -> Functions.holds(arguments, k, v);
            switch (operator) {
                case "table_filter":
                    return kept ? table.filter(predicate, named(arguments), stored) : table.filter(predicate, named(arguments));
                case "table_filter_not":
                    return kept ? table.filterNot(predicate, named(arguments), stored) : table.filterNot(predicate, named(arguments));
                case "table_map_values":
                    ValueMapper<Object, Object> mapper = v -> Functions.value(arguments.get("value"), 0, v);
                    ValueMapperWithKey<Object, Object, Object> keyedMapper =
                            (k, v) -> Functions.keyedValue(arguments, 0, k, v);
                    if (keyed(arguments)) {
                        return kept
                                ? table.mapValues(keyedMapper, named(arguments), stored)
                                : table.mapValues(keyedMapper, named(arguments));
                    }
                    return kept ? table.mapValues(mapper, named(arguments), stored) : table.mapValues(mapper, named(arguments));
                default:
                    String[] stores = counts(arguments);
                    String store = stores.length == 0 ? null : stores[0];
                    ValueTransformerWithKeySupplier<Object, Object, Object> supplier =
                            () -> new Transformer(arguments, store);
                    return kept
                            ? table.transformValues(supplier, stored, named(arguments), stores)
                            : table.transformValues(supplier, named(arguments), stores);
            }
        }

        private Object tablesJoined(
                String operator, KTable<Object, Object> left, KTable<Object, Object> right, JsonNode arguments) {
            boolean kept = arguments.get("kept").asBoolean();
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> stored =
                    kept ? stored(arguments.get("gives")) : null;
            ValueJoiner<Object, Object, Object> joiner = (one, other) -> Functions.joined(arguments, one, other);
            switch (operator) {
                case "tables_join":
                    return kept
                            ? left.join(right, joiner, named(arguments), stored)
                            : left.join(right, joiner, named(arguments));
                case "tables_left_join":
                    return kept
                            ? left.leftJoin(right, joiner, named(arguments), stored)
                            : left.leftJoin(right, joiner, named(arguments));
                default:
                    return kept
                            ? left.outerJoin(right, joiner, named(arguments), stored)
                            : left.outerJoin(right, joiner, named(arguments));
            }
        }

        private Object joinedByForeignKey(
                String operator, KTable<Object, Object> left, KTable<Object, Object> right, JsonNode arguments) {
            boolean kept = arguments.get("kept").asBoolean();
            Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> stored =
                    kept ? stored(arguments.get("gives")) : null;
            ValueJoiner<Object, Object, Object> joiner = (one, other) -> Functions.joined(arguments, one, other);
            TableJoined<Object, Object> joined = TableJoined.as(arguments.path("name").asText("step-" + made.size()));
            BiFunction<Object, Object, Object> foreignKey = (k, v) -> Functions.key(arguments.get("by"), k, v);
            if (operator.equals("foreign_key_join")) {
                return kept
                        ? left.join(right, foreignKey, joiner, joined, stored)
                        : left.join(right, foreignKey, joiner, joined);
            }
            return kept
                    ? left.leftJoin(right, foreignKey, joiner, joined, stored)
                    : left.leftJoin(right, foreignKey, joiner, joined);
        }

        private Object counted(Object grouped, JsonNode arguments) {
            Materialized stored = stored(JSON.getNodeFactory().textNode("number"));
            if (grouped instanceof KGroupedStream) {
                return ((KGroupedStream) grouped).count(named(arguments), stored);
            }
            return grouped instanceof TimeWindowedKStream
                    ? ((TimeWindowedKStream) grouped).count(named(arguments), stored)
                    : ((SessionWindowedKStream) grouped).count(named(arguments), stored);
        }

        private Object reduced(Object grouped, JsonNode arguments) {
            Materialized stored = stored(arguments.get("gives"));
            Reducer<Object> reducer = (soFar, value) -> Functions.folded(arguments, soFar, value);
            if (grouped instanceof KGroupedStream) {
                return ((KGroupedStream) grouped).reduce(reducer, named(arguments), stored);
            }
            return grouped instanceof TimeWindowedKStream
                    ? ((TimeWindowedKStream) grouped).reduce(reducer, named(arguments), stored)
                    : ((SessionWindowedKStream) grouped).reduce(reducer, named(arguments), stored);
        }

        private Object aggregated(Object grouped, JsonNode arguments) {
            Materialized stored = stored(arguments.get("gives"));
            Initializer<Object> initializer = () -> Functions.initial(arguments);
            Aggregator<Object, Object, Object> aggregator =
                    (key, value, soFar) -> Functions.folded(arguments, soFar, value);
            if (grouped instanceof KGroupedStream) {
                return ((KGroupedStream) grouped).aggregate(initializer, aggregator, named(arguments), stored);
            }
            if (grouped instanceof TimeWindowedKStream) {
                return ((TimeWindowedKStream) grouped).aggregate(initializer, aggregator, named(arguments), stored);
            }
            Merger<Object, Object> merger = (key, earlier, later) -> Functions.merged(arguments, earlier, later);
            return ((SessionWindowedKStream) grouped).aggregate(initializer, aggregator, merger, named(arguments), stored);
        }

        private JoinWindows joinWindows(JsonNode arguments) {
            return JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, time(arguments, "grace"))
                    .before(time(arguments, "right"))
                    .after(time(arguments, "left"));
        }

        private StreamJoined<Object, Object, Object> joinedWith(JsonNode arguments) {
            StreamJoined<Object, Object, Object> joined =
                    StreamJoined.with(TEXT_KEYS, serde(arguments.get("value")), serde(arguments.get("other")));
            return arguments.has("name") ? joined.withName(arguments.get("name").asText()) : joined;
        }

        private Materialized stored(JsonNode value) {
            Materialized stored = Materialized.as("s" + made.size()).withKeySerde((Serde) TEXT).withValueSerde((Serde) serde(value));
            return cached ? stored.withCachingEnabled() : stored.withCachingDisabled();
        }

        /** The same with versions, if a step asks for their history. */
        private Materialized stored(JsonNode value, JsonNode arguments) {
            if (!arguments.has("history")) {
                return stored(value);
            }
            return Materialized.as(Stores.persistentVersionedKeyValueStore("s" + made.size(), time(arguments, "history")))
                    .withKeySerde((Serde) TEXT)
                    .withValueSerde((Serde) serde(value));
        }

        /** The name of the step that is being made: its own, or one of its number. */
        private Named named(JsonNode arguments) {
            return Named.as(arguments.path("name").asText("step-" + made.size()));
        }

        private Joined<Object, Object, Object> joined(JsonNode arguments) {
            Joined<Object, Object, Object> joined = Joined.with(TEXT_KEYS, serde(arguments.get("value")), null);
            return arguments.has("name") ? joined.withName(arguments.get("name").asText()) : joined;
        }

        private Grouped<Object, Object> grouped(JsonNode arguments, String value) {
            Grouped<Object, Object> grouped = Grouped.with(TEXT_KEYS, serde(arguments.get(value)));
            return arguments.has("name") ? grouped.withName(arguments.get("name").asText()) : grouped;
        }

        private Consumed<Object, Object> consumed(JsonNode arguments) {
            Consumed<Object, Object> consumed =
                    Consumed.with(serde(arguments.get("key")), serde(arguments.get("value")));
            return arguments.has("timestamps")
                    ? consumed.withTimestampExtractor(extractor(arguments.get("timestamps")))
                    : consumed;
        }

        private static TimestampExtractor extractor(JsonNode arguments) {
            UsePartitionTimeOnInvalidTimestamp instead = new UsePartitionTimeOnInvalidTimestamp();
            boolean replaces = arguments.get("invalid").asText().equals("partition_time");
            return (record, partitionTime) -> {
                long time = Functions.extracted(arguments, record.timestamp(), record.value());
                return time < 0 && replaces ? instead.onInvalidTimestamp(record, time, partitionTime) : time;
            };
        }

        private Produced<Object, Object> produced(JsonNode arguments) {
            Produced<Object, Object> produced =
                    Produced.with(serde(arguments.get("key")), serde(arguments.get("value")));
            return arguments.has("name") ? produced.withName(arguments.get("name").asText()) : produced;
        }

        private static final Serde<Object> TEXT_KEYS = (Serde) TEXT;

        private static Serde<Object> serde(JsonNode name) {
            String[] parts = name.asText().split(":");
            return (Serde) switch (parts[0]) {
                case "text" -> TEXT;
                case "number" -> Serdes.Long();
                case "windows" -> WindowedSerdes.timeWindowedSerdeFrom(String.class, Long.parseLong(parts[1]));
                case "sessions" -> WindowedSerdes.sessionWindowedSerdeFrom(String.class);
                default -> throw new IllegalArgumentException("no serde " + name);
            };
        }

        private static Duration time(JsonNode arguments, String name) {
            return Duration.ofMillis(arguments.get(name).asLong());
        }
    }

    /** Forwards what a function makes of the count of a record's key, and of the record. */
    private static final class Calling extends ContextualFixedKeyProcessor<Object, Object, Object> {
        private final BiFunction<Long, FixedKeyRecord<Object, Object>, Object> function;
        private final String store;

        /**
         * @param function returns a value, or a list of them.
         * @param store holds how many records a key had; none without.
         */
        Calling(BiFunction<Long, FixedKeyRecord<Object, Object>, Object> function, String store) {
            this.function = function;
            this.store = store;
        }

        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            long count = 0;
            if (store != null) {
                count = Functions.counted(context().getStateStore(store), Functions.shown(record.key()));
            }
            Object made = function.apply(count, record);
            for (Object value : made instanceof List ? (List<?>) made : Collections.singletonList(made)) {
                context().forward(record.withValue(value));
            }
        }
    }

    /** Forwards the values that a function makes of a record and the number of its context. */
    private static final class InContext extends ContextualFixedKeyProcessor<Object, Object, Object> {
        private final boolean place;
        private final BiFunction<Long, FixedKeyRecord<Object, Object>, List<Object>> function;

        InContext(boolean place, BiFunction<Long, FixedKeyRecord<Object, Object>, List<Object>> function) {
            this.place = place;
            this.function = function;
        }

        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            long number = Functions.number(place, record.timestamp(), record.headers(), context().recordMetadata());
            for (Object value : function.apply(number, record)) {
                context().forward(record.withValue(value));
            }
        }
    }

    /** What map, flat_map and select_key are with a record's context. */
    private static final class MappedInContext extends ContextualProcessor<Object, Object, Object, Object> {
        private final boolean place;
        private final JsonNode arguments;

        MappedInContext(boolean place, JsonNode arguments) {
            this.place = place;
            this.arguments = arguments;
        }

        @Override
        public void process(Record<Object, Object> record) {
            long number = Functions.number(place, record.timestamp(), record.headers(), context().recordMetadata());
            Object key = Functions.key(arguments.get("key"), number, record.key(), record.value());
            if (arguments.get("value").isNull()) {
                context().forward(record.withKey(key));
                return;
            }
            boolean one = arguments.get("copies").isNull();
            int copies = one ? 1 : Functions.copies(arguments.get("copies"), record.value());
            for (int copy = 0; copy < copies; copy++) {
                Object value = Functions.numbered(
                        Functions.value(arguments.get("value"), copy, record.value()), number);
                context().forward(record.withKey(key).withValue(value));
            }
        }
    }

    /** Adds a header that says what a record weighs. */
    private static final class Heading extends ContextualFixedKeyProcessor<Object, Object, Object> {
        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            byte[] text = Long.toString(Functions.weight(record.value()) % 10).getBytes(StandardCharsets.UTF_8);
            context().forward(record.withHeaders(new RecordHeaders(record.headers()).add("w", text)));
        }
    }

    /** Dates records later; closers keep their time. */
    private static final class Dating extends ContextualFixedKeyProcessor<Object, Object, Object> {
        private final JsonNode arguments;

        Dating(JsonNode arguments) {
            this.arguments = arguments;
        }

        @Override
        public void process(FixedKeyRecord<Object, Object> record) {
            long later = arguments.get("unit").asLong()
                    * (Functions.weight(record.value()) % arguments.get("modulus").asLong());
            long time = record.timestamp() + (Functions.closes(record.value()) ? 0 : later);
            context().forward(record.withTimestamp(time));
        }
    }

    /** Makes a table's values, of how many changes a key had too, if asked for. */
    private static final class Transformer implements ValueTransformerWithKey<Object, Object, Object> {
        private final JsonNode arguments;
        private final String store;
        private KeyValueStore<String, Long> counts;

        Transformer(JsonNode arguments, String store) {
            this.arguments = arguments;
            this.store = store;
        }

        @Override
        public void init(org.apache.kafka.streams.processor.ProcessorContext context) {
            counts = store == null ? null : context.getStateStore(store);
        }

        @Override
        public Object transform(Object key, Object value) {
            long count = counts == null ? 0 : Functions.counted(counts, Functions.shown(key));
            return Functions.transformed(arguments, key, value, count);
        }

        @Override
        public void close() {}
    }

    /** What the steps of programs call: the counterpart of tests/support/programs/functions.py. */
    private static final class Functions {
        private static final String CLOSER = "~";
        private static final long CLOSING = 1_000_000_000L;
        private static final long MODULUS = 1_000_003L;
        private static final int LONGEST = 40;

        static String shown(Object part) {
            if (part instanceof Windowed) {
                Windowed<?> windowed = (Windowed<?>) part;
                return shown(windowed.key()) + "@" + windowed.window().start() + "/" + windowed.window().end();
            }
            return part == null ? "null" : part.toString();
        }

        /** A number of a record's context: its time, its header "n" and, if asked for, its place. */
        static long number(boolean place, long time, Headers headers, Optional<RecordMetadata> metadata) {
            long number = time + Long.parseLong(new String(headers.lastHeader("n").value(), StandardCharsets.UTF_8));
            if (!place) {
                return number;
            }
            RecordMetadata found = metadata.orElseThrow();
            return number + weight(found.topic()) + found.partition() + found.offset();
        }

        static boolean holds(JsonNode arguments, long number, Object key, Object value) {
            if (closes(value)) {
                return arguments.get("closer").asBoolean();
            }
            return (weight(arguments, key, value) + number) % arguments.get("modulus").asLong()
                    == arguments.get("rest").asLong();
        }

        /** The first predicate that holds, or their count. */
        static int branch(JsonNode predicates, long number, Object key, Object value) {
            int branch = 0;
            while (branch < predicates.size() && !holds(predicates.get(branch), number, key, value)) {
                branch++;
            }
            return branch;
        }

        static Object key(JsonNode arguments, long number, Object key, Object value) {
            if (closes(value)) {
                return CLOSER;
            }
            long found = weight(arguments, key, value) + number;
            long nulls = arguments.get("null").asLong();
            return nulls > 0 && found % nulls == 0 ? null : "g" + found % arguments.get("count").asLong();
        }

        static boolean holds(JsonNode arguments, Object key, Object value) {
            if (arguments.get("by").asText().equals("present")) {
                return value != null;
            }
            if (closes(value)) {
                return arguments.get("closer").asBoolean();
            }
            return weight(arguments, key, value) % arguments.get("modulus").asLong() == arguments.get("rest").asLong();
        }

        static Object key(JsonNode arguments, Object key, Object value) {
            if (closes(value)) {
                return CLOSER;
            }
            long found = weight(arguments, key, value);
            long nulls = arguments.get("null").asLong();
            return nulls > 0 && found % nulls == 0 ? null : "g" + found % arguments.get("count").asLong();
        }

        static Object value(JsonNode arguments, int more, Object value) {
            if (closes(value)) {
                return closer(arguments);
            }
            long nulls = arguments.get("null").asLong();
            if (nulls > 0 && weight(value) % nulls == 0) {
                return null;
            }
            long add = arguments.get("add").asLong() + more;
            return givesText(arguments) ? shortened(shown(value) + "." + add) : (Object) ((weight(value) * 7 + add) % MODULUS);
        }

        /** A value with what its key weighs in it. */
        static Object keyedValue(JsonNode arguments, int more, Object key, Object value) {
            return numbered(value(arguments.get("value"), more, value), weight(key));
        }

        /** The copies that a value has, each made of its number. */
        static List<Object> valueCopies(JsonNode arguments, Object value, IntFunction<Object> made) {
            List<Object> copies = new ArrayList<>();
            for (int copy = 0; copy < copies(arguments.get("copies"), value); copy++) {
                copies.add(made.apply(copy));
            }
            return copies;
        }

        static int copies(JsonNode arguments, Object value) {
            return closes(value)
                    ? 1
                    : (int) (arguments.get("least").asLong() + weight(value) % arguments.get("modulus").asLong());
        }

        /** Counts one more of a key. */
        static long counted(KeyValueStore<String, Long> counts, String key) {
            Long before = counts.get(key);
            long count = before == null ? 1 : before + 1;
            counts.put(key, count);
            return count;
        }

        static Object numbered(Object made, long count) {
            if (made == null || closes(made) || count == 0) {
                return made;
            }
            return made instanceof Long ? (Object) (((Long) made + count) % MODULUS) : shortened(made + "#" + count);
        }

        /** A value with the time and the header "n" of its record. */
        static Object valueWith(JsonNode arguments, FixedKeyRecord<Object, Object> record) {
            byte[] number = record.headers().lastHeader("n").value();
            long count = record.timestamp() + Long.parseLong(new String(number, StandardCharsets.UTF_8));
            return numbered(value(arguments, 0, record.value()), count);
        }

        /** The time of a record, -1 of one that has none. */
        static long extracted(JsonNode arguments, long own, Object value) {
            if (closes(value)) {
                return own;
            }
            long every = arguments.get("every").asLong();
            if (every > 0 && weight(value) % every == 1) {
                return -1;
            }
            return own - arguments.get("unit").asLong() * (weight(value) % arguments.get("modulus").asLong());
        }

        /** A result, unless the value fails; no closer does. */
        static Object checked(JsonNode arguments, Object value, Object result) {
            if (!closes(value)
                    && weight(value) % arguments.get("modulus").asLong() == arguments.get("rest").asLong()) {
                throw new IllegalArgumentException("no " + shown(value));
            }
            return result;
        }

        static Object transformed(JsonNode arguments, Object key, Object value, long count) {
            if (closes(key)) {
                return closer(arguments.get("value"));
            }
            if (value == null) {
                Object gone = givesText(arguments.get("value")) ? "gone" : (Object) 7L;
                return arguments.get("gone").asBoolean() ? gone : null;
            }
            return numbered(value(arguments.get("value"), 0, value), count + weight(key));
        }

        static Optional<Set<Integer>> partition(Object value, int partitions) {
            return weight(value) % 2 != 0
                    ? Optional.empty()
                    : Optional.of(Set.of((int) (weight(value) % partitions)));
        }

        static Object initial(JsonNode arguments) {
            return givesText(arguments) ? "" : (Object) 0L;
        }

        static Object folded(JsonNode arguments, Object soFar, Object value) {
            return folded(arguments, arguments.get("deletes").asLong(), soFar, value);
        }

        /** Takes a value out of what folded made. */
        static Object taken(JsonNode arguments, Object soFar, Object value) {
            long deletes = arguments.get("deletes").asLong();
            if (closes(value) || (deletes > 0 && weight(value) % deletes == 0)) {
                return folded(arguments, deletes, soFar, value);
            }
            return givesText(arguments)
                    ? shortened(shown(soFar) + "-" + shown(value))
                    : (Object) ((weight(soFar) * 37 + weight(value)) % MODULUS);
        }

        /** The earlier one may be an initial one. */
        static Object merged(JsonNode arguments, Object earlier, Object later) {
            if (closes(later)) {
                return later;
            }
            return folded(arguments, 0, earlier, later);
        }

        static Object joined(JsonNode arguments, Object left, Object right) {
            if (closes(left) || closes(right)) {
                return closer(arguments);
            }
            return givesText(arguments)
                    ? shortened(shown(left) + "+" + shown(right))
                    : (Object) ((weight(left) * 31 + weight(right)) % MODULUS);
        }

        private static Object folded(JsonNode arguments, long deletes, Object soFar, Object value) {
            if (closes(value)) {
                return closer(arguments);
            }
            if (deletes > 0 && weight(value) % deletes == 0) {
                return null;
            }
            return givesText(arguments)
                    ? shortened(shown(soFar) + "," + shown(value))
                    : (Object) ((weight(soFar) * 31 + weight(value)) % MODULUS);
        }

        static boolean closes(Object part) {
            if (part instanceof Windowed) {
                return closes(((Windowed<?>) part).key());
            }
            return part instanceof Long ? (Long) part >= CLOSING : part != null && ((String) part).startsWith(CLOSER);
        }

        private static Object closer(JsonNode arguments) {
            return givesText(arguments) ? CLOSER : (Object) CLOSING;
        }

        private static boolean givesText(JsonNode arguments) {
            return arguments.get("gives").asText().equals("text");
        }

        private static String shortened(String text) {
            return text.substring(Math.max(0, text.length() - LONGEST));
        }

        static long weight(Object part) {
            if (part == null) {
                return 0;
            }
            return part instanceof Long ? (Long) part : shown(part).chars().sum();
        }

        private static long weight(JsonNode arguments, Object key, Object value) {
            String by = arguments.get("by").asText();
            return (by.equals("value") ? 0 : weight(key)) + (by.equals("key") ? 0 : weight(value));
        }
    }
}
