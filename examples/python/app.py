"""Takes each Kafka record as a POST, decodes it, and logs it as one line of JSON."""

import json
from base64 import b64encode

from decode import decode
from fastapi import FastAPI, Request

app = FastAPI()
done: set[str] = set()  # for real: a unique column, written in the transaction of the work


@app.post("/events/{topic}", status_code=204)
async def event(topic: str, request: Request) -> None:
    sent = request.headers
    idempotency_key = sent["idempotency-key"]
    if idempotency_key in done:
        return  # a repeat of what is done: only the answer was lost
    key, value, headers = decode(sent.raw, await request.body())
    line = {
        "topic": topic,
        "partition": int(sent["kafka-partition"]),
        "offset": int(sent["kafka-offset"]),
        "timestamp": int(sent["kafka-timestamp"]) if "kafka-timestamp" in sent else None,
        "key": base64(key),
        "value": base64(value),
        "headers": [(name, base64(data)) for name, data in headers],
        "attempt": int(sent["sidecar-attempt"]),
        "idempotency_key": idempotency_key,
    }
    print(json.dumps(line), flush=True)
    done.add(idempotency_key)


@app.get("/healthz")
async def healthz() -> str:
    return "ok"


def base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode("ascii")
