-- Asks Sluice whether a request may pass: sets txn.sluice_allowed and txn.sluice_event_id.
-- Any error leaves them unset, which denies.

local URL = "http://127.0.0.1:8710/v1/check/haproxy"
local KEY = os.getenv("SLUICE_KEY")

-- What else of a request reaches Sluice: for whom it is, which haproxy.cfg has set or removed, and
-- how its body is to be read.
local PASSED_ON = {
    "^x%-sluice%-",
    "^content%-type$",
    "^content%-encoding$",
    -- For MCP: its headers have to agree with the body. Without it, an upstream that goes by them
    -- reads another name than was judged.
    "^mcp%-", -- safety: headers
}

local function is_passed_on(name)
    for _, pattern in ipairs(PASSED_ON) do
        if name:find(pattern) then
            return true
        end
    end
    return false
end

-- The body, if all of it is here. Only a length that the client stated tells: of a chunked body, HAProxy
-- knows no more than has come, and what comes later would reach the upstream unjudged.
local function whole_body(txn, received)
    local stated, body = received["content-length"], txn.f:req_body()
    if stated ~= nil and stated[1] == nil and body ~= nil and tonumber(stated[0]) == #body then
        return body
    end
    return nil
end

core.register_action("sluice", { "http-req" }, function(txn)
    local received = txn.http:req_get_headers()
    local headers = {}
    for name, values in pairs(received) do
        if is_passed_on(name) then
            headers[name] = {}
            for index = 0, #values do
                headers[name][index + 1] = values[index]
            end
        end
    end
    headers["x-api-key"] = { KEY }
    headers["x-forwarded-method"] = { txn.f:method() }
    headers["x-forwarded-uri"] = { txn.f:pathq() }
    local request = { url = URL, headers = headers, timeout = 2000 }
    -- A body that is not here as a whole is not sent, so that a source that needs it denies.
    local body, answer = whole_body(txn, received), nil
    if body ~= nil and #body > 0 then
        request.body = body
        answer = core.httpclient():post(request)
    else
        answer = core.httpclient():get(request)
    end
    if answer == nil or answer.status ~= 200 then
        return
    end
    local event = (answer.headers or {})["x-sluice-event-id"]
    txn:set_var("txn.sluice_event_id", event and event[0] or "")
    txn:set_var("txn.sluice_allowed", true)
end)
