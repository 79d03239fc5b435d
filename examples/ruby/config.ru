# Takes each Kafka record as a POST, decodes it, and logs it as one line of JSON.
require "json"
require_relative "decode"

$stdout.sync = true
done = {} # for real: a unique column, written in the transaction of the work
base64 = ->(data) { data && [data].pack("m0") }
number = ->(text) { text && Integer(text) }

event = lambda do |env|
  idempotency_key = env["HTTP_IDEMPOTENCY_KEY"]
  unless done[idempotency_key] # else only the answer was lost
    key, value, headers = decode(env, env["rack.input"].read)
    puts JSON.generate(
      topic: env["HTTP_KAFKA_TOPIC"],
      partition: number[env["HTTP_KAFKA_PARTITION"]],
      offset: number[env["HTTP_KAFKA_OFFSET"]],
      timestamp: number[env["HTTP_KAFKA_TIMESTAMP"]],
      key: base64[key],
      value: base64[value],
      headers: headers.map { |name, data| [name, base64[data]] },
      attempt: number[env["HTTP_SIDECAR_ATTEMPT"]],
      idempotency_key: idempotency_key,
    )
    done[idempotency_key] = true
  end
  [204, {}, []]
end

map("/events") { run event }
map("/healthz") { run ->(_) { [200, {}, ["ok"]] } }
