"""The routes of alert rules and fired alerts."""

from control_api.alerts.operations import (
    create_alert_rule,
    delete_alert_rule,
    get_alert_rule,
    list_alert_rules,
    list_fired_alerts,
    update_alert_rule,
)
from control_api.edge.route import ADMIN, READ, Route

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/alerts/rules", READ, list_alert_rules),
    Route("POST", "/v1/alerts/rules", ADMIN, create_alert_rule, 201, errors=(409,)),
    Route("GET", "/v1/alerts/rules/{rule_id}", READ, get_alert_rule),
    Route("PUT", "/v1/alerts/rules/{rule_id}", ADMIN, update_alert_rule),
    Route("DELETE", "/v1/alerts/rules/{rule_id}", ADMIN, delete_alert_rule),
    Route("GET", "/v1/alerts/fired", READ, list_fired_alerts),
)
