// Takes each Kafka record as a POST, decodes it, and logs it as one line of JSON.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
)

var done sync.Map // for real: a unique column, written in the transaction of the work

func event(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // nobody waits for the answer any more
	}
	key, value, headers, err := decode(r.Header, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	idempotencyKey := r.Header.Get("Idempotency-Key")
	if _, repeat := done.Load(idempotencyKey); !repeat { // else only the answer was lost
		line := map[string]any{
			"topic":           r.Header.Get("Kafka-Topic"),
			"partition":       json.Number(r.Header.Get("Kafka-Partition")),
			"offset":          json.Number(r.Header.Get("Kafka-Offset")),
			"timestamp":       nil,
			"key":             key,
			"value":           value,
			"headers":         headers,
			"attempt":         json.Number(r.Header.Get("Sidecar-Attempt")),
			"idempotency_key": idempotencyKey,
		}
		if timestamp := r.Header.Get("Kafka-Timestamp"); timestamp != "" {
			line["timestamp"] = json.Number(timestamp)
		}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			log.Fatal(err)
		}
		done.Store(idempotencyKey, true)
	}
	w.WriteHeader(http.StatusNoContent)
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	http.HandleFunc("/events/", event)
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, nil))
}
