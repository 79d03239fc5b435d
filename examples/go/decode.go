package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// header is the pair [name, value] in JSON; nil is null.
type header struct {
	name  string
	value []byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *header) UnmarshalJSON(pair []byte) error {
	return json.Unmarshal(pair, &[]any{&h.name, &h.value})
}

// decode gives the record's key, value and headers: nil for null, empty for empty.
func decode(fields http.Header, body []byte) (key, value []byte, headers []header, err error) {
	unwrap := func(text string) []byte {
		if !strings.HasPrefix(text, ":") {
			return []byte(text)
		}
		data, wrong := base64.StdEncoding.DecodeString(strings.Trim(text, ":"))
		if wrong != nil {
			err = wrong
		}
		return data
	}
	if texts, ok := fields["Kafka-Key"]; ok {
		key = unwrap(texts[0])
	}
	if fields.Get("Kafka-Tombstone") == "" {
		value = body
	}
	headers = []header{}
	if list := fields.Get("Kafka-Headers"); list != "" {
		pairs := unwrap(list)
		if err == nil {
			err = json.Unmarshal(pairs, &headers)
		}
		return
	}
	const prefix = "Kafka-Header-"
	for name, texts := range fields {
		for _, text := range texts {
			if strings.HasPrefix(name, prefix) {
				headers = append(headers, header{name[len(prefix):], unwrap(text)})
			}
		}
	}
	return
}
