-- What wrk sends: PUTs or GETs, in turns over all entries. Arguments: the method, then a path for each entry.

local paths, method, count = {}, "GET", 0

function init(arguments)
  method = arguments[1]
  for place = 2, #arguments do
    paths[#paths + 1] = arguments[place]
  end
end

function request()
  count = count + 1
  local path = paths[count % #paths + 1]
  if method == "GET" then
    return wrk.format("GET", path)
  end
  local value = string.format('{"value":{"page":%d,"cursor":"eyJwYWdlIjog%04d","rows":%d}}', count, count, count * 500)
  return wrk.format(method, path, nil, value)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"answers":%d,"microseconds":%d,"p50":%d,"p99":%d,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
