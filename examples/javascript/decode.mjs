const unwrap = (text) =>
  text.startsWith(":") ? Buffer.from(text.slice(1, -1), "base64") : Buffer.from(text);

// Key, value and headers; fields are the request's headersDistinct, which joins no repeats.
export function decode(fields, body) {
  const key = fields["kafka-key"] ? unwrap(fields["kafka-key"][0]) : null;
  const value = fields["kafka-tombstone"] ? null : body;
  const list = fields["kafka-headers"];
  if (list) {
    const pairs = JSON.parse(unwrap(list[0]));
    const bytes = (data) => (data === null ? null : Buffer.from(data, "base64"));
    return { key, value, headers: pairs.map(([name, data]) => [name, bytes(data)]) };
  }
  const prefix = "kafka-header-";
  const own = Object.entries(fields).filter(([name]) => name.startsWith(prefix));
  const headers = own.flatMap(([name, texts]) =>
    texts.map((text) => [name.slice(prefix.length), unwrap(text)]),
  );
  return { key, value, headers };
}
