-- Asks Sluice whether a request may pass: the action `sluice` sets txn.sluice_allowed and
-- txn.sluice_event_id, or the four variables from which the service `sluice_refusal` answers the
-- client. Any error leaves all of them unset, which refuses with a 503.

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

-- The statuses with which a door refuses. Any other, and none, means that Sluice did not answer.
local REFUSALS = { [401] = true, [403] = true, [404] = true, [413] = true }
local UNANSWERED = '{"error":"Service Unavailable","message":"Sluice did not answer","code":503}'

-- What a client sees of a refusal, and where it is kept until then.
local SHOWN = {
    ["content-type"] = "txn.sluice_type",
    ["retry-after"] = "txn.sluice_retry",
    ["x-sluice-decision"] = "txn.sluice_decision",
    ["x-sluice-event-id"] = "txn.sluice_event_id",
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
    local status = answer and answer.status
    local function header(name)
        local found = (answer.headers or {})[name]
        return found and found[0] or ""
    end
    if status == 200 then
        txn:set_var("txn.sluice_event_id", header("x-sluice-event-id"))
        txn:set_var("txn.sluice_allowed", true)
    elseif REFUSALS[status] then
        txn:set_var("txn.sluice_status", status)
        txn:set_var("txn.sluice_body", answer.body or "")
        for name, variable in pairs(SHOWN) do
            txn:set_var(variable, header(name))
        end
    end
end)

-- What the client of a refused request gets. An error in it is a 500 of HAProxy's: whatever happens
-- here, nothing is forwarded any more.
core.register_service("sluice_refusal", "http", function(applet)
    local status = applet:get_var("txn.sluice_status")
    local body = applet:get_var("txn.sluice_body") or UNANSWERED
    applet:set_status(status or 503)
    for name, variable in pairs(SHOWN) do
        local value = applet:get_var(variable)
        if value ~= nil and value ~= "" then
            applet:add_header(name, value)
        end
    end
    if status == nil then
        applet:add_header("content-type", "application/json")
        applet:add_header("retry-after", "1")
    end
    applet:add_header("content-length", tostring(#body))
    applet:start_response()
    applet:send(body)
end)
