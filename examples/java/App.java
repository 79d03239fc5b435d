import com.sun.net.httpserver.*;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.*;
import java.util.stream.Collectors;
import static java.nio.charset.StandardCharsets.US_ASCII;

/** Takes each Kafka record as a POST, decodes it, and logs it as one line of JSON. */
class App {
    static final String LINE = """
            {"topic":%s,"partition":%s,"offset":%s,"timestamp":%s,"key":%s,"value":%s,\
            "headers":[%s],"attempt":%s,"idempotency_key":%s}""";
    static final Set<String> done = ConcurrentHashMap.newKeySet(); // for real: a unique column

    public static void main(String[] arguments) throws IOException {
        // By default 200 request headers, fewer than fit into what the sidecar sends.
        System.setProperty("sun.net.httpserver.maxReqHeaders", "1000");
        var port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8080"));
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.createContext("/events/", App::event);
        server.createContext("/healthz", exchange -> exchange.sendResponseHeaders(204, -1));
        server.start();
    }

    static void event(HttpExchange exchange) throws IOException {
        var sent = exchange.getRequestHeaders();
        var body = exchange.getRequestBody().readAllBytes();
        var idempotencyKey = sent.getFirst("Idempotency-Key");
        try {
            if (!done.contains(idempotencyKey)) { // else only the answer was lost
                System.out.println(line(sent, KafkaRecord.decode(sent, body)));
                done.add(idempotencyKey); // for real: in the transaction of the work
            }
            exchange.sendResponseHeaders(204, -1);
        } catch (RuntimeException error) {
            error.printStackTrace();
            exchange.sendResponseHeaders(500, -1); // the sidecar tries again
        }
    }

    static String line(Headers sent, KafkaRecord record) {
        var headers = record.headers().stream()
                .map(each -> "[" + quote(each.name()) + "," + base64(each.value()) + "]");
        return LINE.formatted(
                quote(sent.getFirst("Kafka-Topic")), sent.getFirst("Kafka-Partition"),
                sent.getFirst("Kafka-Offset"), sent.getFirst("Kafka-Timestamp"),
                base64(record.key()), base64(record.value()),
                headers.collect(Collectors.joining(",")),
                sent.getFirst("Sidecar-Attempt"), quote(sent.getFirst("Idempotency-Key")));
    }

    static String base64(byte[] data) {
        return data == null ? "null" : quote(Base64.getEncoder().encodeToString(data));
    }

    static String quote(String text) {
        return text.chars().mapToObj(unit -> unit > 31 && unit < 127 && unit != '"' && unit != '\\'
                ? Character.toString(unit) : "\\u%04x".formatted(unit))
                .collect(Collectors.joining("", "\"", "\""));
    }
}

/** What a request of the sidecar carries: null is null, empty is empty. */
record KafkaRecord(byte[] key, byte[] value, List<Header> headers) {
    record Header(String name, byte[] value) {}

    // The JDK reads no JSON; with a library at hand this is [[name, base64 or null], ...].
    static final Pattern PAIR = Pattern.compile(
            "\\[\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\",(?:null|\"([^\"]*)\")]");
    static final Base64.Decoder BASE64 = Base64.getDecoder();
    static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(\\p{XDigit}{4})|.)");

    static KafkaRecord decode(Headers sent, byte[] body) {
        var headers = new ArrayList<Header>();
        if (sent.containsKey("Kafka-Headers")) {
            var pairs = PAIR.matcher(new String(unwrap(sent.getFirst("Kafka-Headers")), US_ASCII));
            while (pairs.find()) {
                var name = ESCAPE.matcher(pairs.group(1)).replaceAll(KafkaRecord::unescape);
                var data = pairs.group(2);
                headers.add(new Header(name, data == null ? null : BASE64.decode(data)));
            }
        } else {
            sent.forEach((name, texts) -> {
                if (name.startsWith("Kafka-header-")) { // as the JDK's server writes it
                    var own = name.substring("Kafka-header-".length());
                    texts.forEach(text -> headers.add(new Header(own, unwrap(text))));
                }
            });
        }
        var key = sent.containsKey("Kafka-Key") ? unwrap(sent.getFirst("Kafka-Key")) : null;
        return new KafkaRecord(key, sent.containsKey("Kafka-Tombstone") ? null : body, headers);
    }

    static byte[] unwrap(String text) {
        return text.startsWith(":")
                ? BASE64.decode(text.substring(1, text.length() - 1))
                : text.getBytes(US_ASCII);
    }

    static String unescape(MatchResult escape) {
        var hex = escape.group(1);
        return Matcher.quoteReplacement(hex == null
                ? escape.group().translateEscapes()
                : Character.toString(Integer.parseInt(hex, 16)));
    }
}
