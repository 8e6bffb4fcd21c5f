{{/* Rules that several network policies share. */}}

{{/* Names are resolved over UDP, and over TCP when an answer is long. */}}
{{- define "sluice.dnsEgress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{/* Prometheus may scrape. */}}
{{- define "sluice.scrapeIngress" -}}
- ports:
    - {port: metrics, protocol: TCP}
  from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.monitoring.namespace }}
{{- end -}}
