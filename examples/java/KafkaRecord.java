import com.sun.net.httpserver.Headers;
import java.util.*;
import java.util.regex.*;
import static java.nio.charset.StandardCharsets.US_ASCII;

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
