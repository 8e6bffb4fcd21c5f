-- What wrk sends and checks: python -m tests.benchmarks.mixed makes its file (see mixed.py).

local requests, rules, at = {}, {}, 0
wrong = 0
example = ""

function setup(thread)
  only = thread
end

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  local parts = {}
  for part in (file:read("*a") .. "\0"):gmatch("(%Z*)%z") do
    parts[#parts + 1] = part
  end
  file:close()
  local count = tonumber(parts[1])
  for rule = 1, count do
    rules[rule] = { parts[2 * rule], parts[2 * rule + 1] }
  end
  for part = 2 * count + 2, #parts do
    requests[#requests + 1] = parts[part]
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function response(status, _, body)
  for _, rule in ipairs(rules) do
    if body:find(rule[1], 1, true) then
      if status ~= 200 or not body:find(rule[2], 1, true) then
        wrong = wrong + 1
        example = status .. " " .. body
      end
      return
    end
  end
end

function done(summary, latency, _)
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format(
    '\n{"answers": %d, "seconds": %f, "p50": %f, "p99": %f, "longest": %f, "wrong": %d, "lost": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, latency.max / 1e3, only:get("wrong"), lost))
  io.write(only:get("example"), "\n")
end
