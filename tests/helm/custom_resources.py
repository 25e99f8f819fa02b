"""The fields of custom resources that the chart uses: what their operators accept, and nothing beyond what we write."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|[smhdwy]))+$"}
METADATA = {"type": "object", "required": ["name", "labels"], "properties": {"name": TEXT, "labels": TEXTS}}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def several(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


def resource(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return fields(
        *("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=METADATA,
        spec=spec,
    )


RULE = fields("expr", alert=TEXT, record=TEXT, expr=TEXT, **{"for": DURATION}, labels=TEXTS, annotations=TEXTS)
SERVICE_MONITOR = fields(
    *("selector", "endpoints"),
    jobLabel=TEXT,
    selector=fields("matchLabels", matchLabels=TEXTS),
    endpoints=several(
        fields("port", port=TEXT, path=TEXT, interval=DURATION, scrapeTimeout=DURATION, honorLabels={"type": "boolean"})
    ),
)
HTTP_ROUTE = fields(
    *("parentRefs", "rules"),
    parentRefs=several(fields("name", name=TEXT, namespace=TEXT, sectionName=TEXT)),
    hostnames=several(TEXT),
    rules=several(
        fields(
            matches=several(fields(path=fields("type", "value", type={"enum": ["PathPrefix", "Exact"]}, value=TEXT))),
            timeouts=fields(request={"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}),
            backendRefs=several(fields("name", "port", name=TEXT, port={"type": "integer"})),
        )
    ),
)

CERTIFICATE = fields(
    *("secretName", "dnsNames", "issuerRef"),
    secretName=TEXT,
    dnsNames=several(TEXT),
    usages=several({"enum": ["server auth", "client auth", "digital signature", "key encipherment"]}),
    issuerRef=fields("name", name=TEXT, kind={"enum": ["Issuer", "ClusterIssuer"]}, group=TEXT),
)

CERT_MANAGER = "cert-manager.io/v1"
OPERATOR = "monitoring.coreos.com/v1"
GATEWAY_API = "gateway.networking.k8s.io/v1"
CUSTOM_RESOURCES: dict[tuple[str, str], dict[str, Any]] = {
    (OPERATOR, "ServiceMonitor"): resource(OPERATOR, "ServiceMonitor", SERVICE_MONITOR),
    (OPERATOR, "PrometheusRule"): resource(
        OPERATOR,
        "PrometheusRule",
        fields("groups", groups=several(fields("name", "rules", name=TEXT, interval=DURATION, rules=several(RULE)))),
    ),
    (CERT_MANAGER, "Certificate"): resource(CERT_MANAGER, "Certificate", CERTIFICATE),
    (GATEWAY_API, "HTTPRoute"): resource(GATEWAY_API, "HTTPRoute", HTTP_ROUTE),
}
