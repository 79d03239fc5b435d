import com.sun.net.httpserver.*;
import java.io.*;
import java.net.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

/** Takes each Kafka record as a POST, decodes it, and logs it as one line of JSON. */
class App {
    static final String LINE = """
            {"topic":%s,"partition":%s,"offset":%s,"timestamp":%s,"key":%s,"value":%s,\
            "headers":[%s],"attempt":%s,"idempotency_key":%s}""";
    static final Set<String> done = ConcurrentHashMap.newKeySet(); // for real: a unique column
    public static void main(String[] arguments) throws IOException {
        System.setProperty("sun.net.httpserver.maxReqHeaders", "1000"); // 200 would be too few
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
        var identity = sent.getFirst("Idempotency-Key");
        try {
            if (!done.contains(identity)) { // else only the answer was lost
                System.out.println(line(sent, KafkaRecord.decode(sent, body)));
                done.add(identity); // for real: in the transaction of the work
            }
            exchange.sendResponseHeaders(204, -1);
        } catch (RuntimeException error) {
            error.printStackTrace();
            exchange.sendResponseHeaders(500, -1); // the sidecar tries again
        }
    }

    static String line(Headers sent, KafkaRecord record) {
        var headers = record.headers().stream()
                .map(each -> "[" + quote(each.name()) + "," + base64(each.value()) + "]")
                .collect(Collectors.joining(","));
        return LINE.formatted(quote(sent.getFirst("Kafka-Topic")), sent.getFirst("Kafka-Partition"),
                sent.getFirst("Kafka-Offset"), sent.getFirst("Kafka-Timestamp"), base64(record.key()),
                base64(record.value()), headers, sent.getFirst("Sidecar-Attempt"),
                quote(sent.getFirst("Idempotency-Key")));
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
