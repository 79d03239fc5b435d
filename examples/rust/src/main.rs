//! Takes each Kafka record as a POST, decodes it, and logs it as one line of JSON.
mod decode;

use base64::{engine::general_purpose::STANDARD, Engine};
use decode::{decode, field, Bytes};
use serde_json::json;
use std::{collections::HashSet, env, error::Error, sync::Mutex, thread};
use tiny_http::{Request, Response, Server};

type Done = Mutex<HashSet<String>>; // for real: a unique column, in the transaction of the work

fn event(request: &mut Request, done: &Done) -> Result<(), Box<dyn Error>> {
    let mut body = Vec::new();
    request.as_reader().read_to_end(&mut body)?;
    let fields = request.headers();
    let idempotency_key = field(fields, "Idempotency-Key").ok_or("no Idempotency-Key")?;
    if done.lock().unwrap().contains(idempotency_key) {
        return Ok(()); // a repeat of what is done: only the answer was lost
    }
    let record = decode(fields, body)?;
    let base64 = |data: &Option<Bytes>| data.as_ref().map(|data| STANDARD.encode(data));
    let number = |name| field(fields, name).and_then(|text| text.parse::<i64>().ok());
    let headers = record.headers.iter().map(|(name, data)| json!([name, base64(data)]));
    let line = json!({
        "topic": field(fields, "Kafka-Topic"), "partition": number("Kafka-Partition"),
        "offset": number("Kafka-Offset"), "timestamp": number("Kafka-Timestamp"),
        "key": base64(&record.key), "value": base64(&record.value),
        "headers": headers.collect::<Vec<_>>(),
        "attempt": number("Sidecar-Attempt"),
        "idempotency_key": idempotency_key,
    });
    println!("{line}");
    done.lock().unwrap().insert(idempotency_key.into());
    Ok(())
}

fn serve(server: &Server, done: &Done) {
    for mut request in server.incoming_requests() {
        let path = request.url().to_owned();
        let status = match path.starts_with("/events/").then(|| event(&mut request, done)) {
            Some(Ok(())) => 204,
            Some(Err(error)) => {
                eprintln!("{error}");
                500 // the sidecar tries again
            }
            None if path == "/healthz" => 200,
            None => 404,
        };
        let _ = request.respond(Response::empty(status)); // fails if nobody waits any more
    }
}

fn main() {
    let port = env::var("PORT").unwrap_or("8080".into());
    let server = Server::http(format!("127.0.0.1:{port}")).expect("the port is free");
    let done = Done::default();
    thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(|| serve(&server, &done)))));
}
