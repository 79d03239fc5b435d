use base64::{engine::general_purpose::STANDARD, DecodeError, Engine};
use std::error::Error;
use tiny_http::Header;

pub type Bytes = Vec<u8>;

pub struct Record {
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
}

fn unwrap(text: &str) -> Result<Bytes, DecodeError> {
    match text.strip_prefix(':') {
        Some(data) => STANDARD.decode(data.trim_end_matches(':')),
        None => Ok(text.into()),
    }
}

pub fn field<'a>(fields: &'a [Header], name: &'static str) -> Option<&'a str> {
    fields.iter().find(|field| field.field.equiv(name)).map(|field| field.value.as_str())
}

/// The record that a request carries: None is null.
pub fn decode(fields: &[Header], body: Bytes) -> Result<Record, Box<dyn Error>> {
    let key = field(fields, "Kafka-Key").map(unwrap).transpose()?;
    let tombstone = field(fields, "Kafka-Tombstone").is_some();
    let value = (!tombstone).then_some(body);
    let mut headers = Vec::new();
    if let Some(list) = field(fields, "Kafka-Headers") {
        let pairs: Vec<(String, Option<String>)> = serde_json::from_slice(&unwrap(list)?)?;
        for (name, data) in pairs {
            headers.push((name, data.map(|data| STANDARD.decode(data)).transpose()?));
        }
    } else {
        for field in fields {
            let name = field.field.as_str().as_str().to_ascii_lowercase();
            if let Some(name) = name.strip_prefix("kafka-header-") {
                headers.push((name.into(), Some(unwrap(field.value.as_str())?)));
            }
        }
    }
    Ok(Record { key, value, headers })
}
