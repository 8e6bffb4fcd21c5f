"""Lists the routes of alert rules and fired alerts."""

from control_api.alerts import operations
from control_api.edge.route import ADMIN, READ, Route

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/alerts/rules", READ, operations.list_alert_rules),
    Route("POST", "/v1/alerts/rules", ADMIN, operations.create_alert_rule, 201, errors=(409,)),
    Route("GET", "/v1/alerts/rules/{rule_id}", READ, operations.get_alert_rule),
    Route("PUT", "/v1/alerts/rules/{rule_id}", ADMIN, operations.update_alert_rule),
    Route("DELETE", "/v1/alerts/rules/{rule_id}", ADMIN, operations.delete_alert_rule),
    Route("GET", "/v1/alerts/fired", READ, operations.list_fired_alerts),
)
