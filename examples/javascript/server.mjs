// Takes each Kafka record as a POST, decodes it, and logs it as one line of JSON.
import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { decode } from "./decode.mjs";

const done = new Set(); // for real: a unique column, written in the transaction of the work
const base64 = (data) => data?.toString("base64") ?? null;

async function event(request) {
  const fields = request.headersDistinct;
  const body = await buffer(request);
  const [idempotencyKey] = fields["idempotency-key"];
  if (done.has(idempotencyKey)) return; // a repeat of what is done: only the answer was lost
  const { key, value, headers } = decode(fields, body);
  const number = (name) => (fields[name] ? Number(fields[name][0]) : null);
  const line = {
    topic: decodeURIComponent(request.url.slice("/events/".length)),
    partition: number("kafka-partition"),
    offset: number("kafka-offset"),
    timestamp: number("kafka-timestamp"),
    key: base64(key),
    value: base64(value),
    headers: headers.map(([name, data]) => [name, base64(data)]),
    attempt: number("sidecar-attempt"),
    idempotency_key: idempotencyKey,
  };
  console.log(JSON.stringify(line));
  done.add(idempotencyKey);
}

async function answer(request) {
  if (request.url === "/healthz") return 200;
  if (request.method !== "POST" || !request.url.startsWith("/events/")) return 404;
  await event(request);
  return 204;
}

const server = createServer(async (request, response) => {
  const status = await answer(request).catch((error) => {
    console.error(error);
    return 500; // the sidecar tries again
  });
  response.writeHead(status).end();
});
server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1");
