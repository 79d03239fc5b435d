require "json"

def unwrap(text) = text.start_with?(":") ? text[1..-2].unpack1("m") : text.b

# Key, value and headers. Rack joins repeated headers by commas, so the whole list is needed:
# set headers_always in the route.
def decode(env, body)
  key = env["HTTP_KAFKA_KEY"] && unwrap(env["HTTP_KAFKA_KEY"])
  value = body unless env["HTTP_KAFKA_TOMBSTONE"]
  pairs = JSON.parse(unwrap(env.fetch("HTTP_KAFKA_HEADERS")))
  [key, value, pairs.map { |name, data| [name, data&.unpack1("m")] }]
end
