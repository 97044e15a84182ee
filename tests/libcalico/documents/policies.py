"""Policies, staged policies, tiers, profiles, network sets (docs/reference/data-model.md)."""

# A case is a line, however long.
# ruff: noqa: E501
from __future__ import annotations

from tests.libcalico.documents import Refused, Taken, document

IN, OUT = "spec.ingress[0]", "spec.egress[0]"


def _of(kind: str, id_: str, spec: str, path: str, rule: str, metadata: str = "") -> Refused:
    return Refused(f"{kind}-{id_}", document(kind, spec, metadata), path, rule)


def _np(id_: str, spec: str, path: str, rule: str, metadata: str = "") -> Refused:
    return _of("NetworkPolicy", id_, spec, path, rule, metadata)


def _gnp(id_: str, spec: str, path: str, rule: str, metadata: str = "") -> Refused:
    return _of("GlobalNetworkPolicy", id_, spec, path, rule, metadata)


def _rule(id_: str, rule: str, path: str, message: str) -> Refused:
    """A fault of one ingress rule that is otherwise allowed."""
    return _np(id_, f"ingress: [{{action: Allow, {rule}}}]", f"{IN}{path}", message)


def _source(id_: str, side: str, path: str, message: str) -> Refused:
    return _rule(id_, f"source: {{{side}}}", f".source{path}", message)


def _many(count: int, item: str) -> str:
    return "[" + ", ".join([item] * count) + "]"


REFUSED = [
    _np("name", "", "metadata.name", "at most one dot", "name: a.b.c"),
    _np("name-case", "", "metadata.name", "lower-case", "name: Web"),
    _np("name-long", "", "metadata.name", "253", f"name: {'a' * 254}"),
    _np("label", "", "metadata.labels[a b]", "63", "name: a, labels: {'a b': c}"),
    _np("label-value", "", "metadata.labels[a]", "63", f"name: a, labels: {{a: {'b' * 64}}}"),
    _np("annotation", "", "metadata.annotations[-a]", "63", "name: a, annotations: {-a: b}"),
    _np("annotations", "", "metadata.annotations", "256 KiB", f"name: a, annotations: {{a: {'b' * 262144}}}"),
    _np("tier", "tier: MyTier", "spec.tier", "lower-case"),
    _np("order", "order: first", "spec.order", "number"),
    _np("selector", "selector: 'role = web'", "spec.selector", "selector"),
    _np("selector-global", "selector: 'a == \"b\" && global()'", "spec.selector", "global()"),
    _np("accounts", "serviceAccountSelector: '!'", "spec.serviceAccountSelector", "selector"),
    _np("type", "types: [ingress]", "spec.types[0]", "Ingress"),
    _np("type-twice", "types: [Ingress, Ingress]", "spec.types[1]", "already"),
    _np("hint", "performanceHints: [Fast]", "spec.performanceHints[0]", "AssumeNeeded"),
    _np("untracked", "doNotTrack: true", "spec.doNotTrack", "no such field"),
    _np("no-action", "ingress: [{}]", f"{IN}.action", "Allow"),
    _np("action", "ingress: [{action: allow}]", f"{IN}.action", "Allow"),
    _np("rules", "ingress: {action: Allow}", "spec.ingress", "list"),
    _np("rules-null", "ingress: [null]", "spec.ingress[0]", "null"),
    _np("rules-many", f"ingress: {_many(1025, '{action: Deny}')}", "spec.ingress", "1024"),
    _rule("version", "ipVersion: 5", ".ipVersion", "4 or 6"),
    _rule("protocol", "protocol: tcp", ".protocol", "TCP"),
    _rule("protocol-number", "protocol: 256", ".protocol", "1 to 255"),
    _rule("protocol-0", "protocol: 0", ".protocol", "1 to 255"),
    _rule("protocol-not", "notProtocol: GRE", ".notProtocol", "UDPLite"),
    _rule("icmp-alone", "icmp: {type: 8}", ".icmp", "protocol ICMP"),
    _rule("icmp-type", "protocol: ICMP, icmp: {type: 255}", ".icmp.type", "0 to 254"),
    _rule("icmp-code", "protocol: ICMP, icmp: {type: 3, code: 256}", ".icmp.code", "0 to 255"),
    _rule("icmp-code-alone", "protocol: ICMP, icmp: {code: 3}", ".icmp.code", "needs a type"),
    _rule("icmp-v6", "protocol: ICMP, ipVersion: 6", ".protocol", "IPv4"),
    _rule("icmpv6-v4", "protocol: ICMPv6, ipVersion: 4", ".protocol", "IPv6"),
    _rule("icmp-not-v6", "notProtocol: 1, ipVersion: 6", ".notProtocol", "IPv4"),
    _rule("http-udp", "protocol: UDP, http: {methods: [GET]}", ".http", "TCP"),
    _rule("http-methods", "http: {methods: [GET, GET]}", ".http.methods[1]", "already"),
    _rule("http-many", f"http: {{methods: {[f'M{i}' for i in range(21)]}}}", ".http.methods", "20"),
    _rule("http-path", "http: {paths: [{exact: /a, prefix: /b}]}", ".http.paths[0]", "one of"),
    _rule("http-no-path", "http: {paths: [{}]}", ".http.paths[0]", "one of"),
    _rule("http-relative", "http: {paths: [{exact: a}]}", ".http.paths[0].exact", "begin with /"),
    _rule("http-query", "http: {paths: [{prefix: '/a?b'}]}", ".http.paths[0].prefix", "no '?'"),
    _rule("annotation-of-rule", "metadata: {annotations: {'a b': c}}", ".metadata.annotations[a b]", "63"),
    _source("net", "nets: [10.0.0.0/33]", ".nets[0]", "CIDR"),
    _source("net-bare", "nets: [10.0.0.1]", ".nets[0]", "prefix length"),
    _source("net-bits", "nets: [10.0.0.0/8, 10.0.0.1/8]", ".nets[1]", "behind the mask"),
    _source("net-families", "nets: [10.0.0.0/8, 'fd00::/8']", ".nets[1]", "IPv4 as other"),
    _source("nets-many", f"nets: {[f'10.0.{i}.0/24' for i in range(256)] + ['10.1.0.0/24']}", ".nets", "256"),
    _source("not-everything", "notNets: [0.0.0.0/0]", ".notNets[0]", "everything"),
    _source("not-everything-v6", "notNets: ['::/0']", ".notNets[0]", "everything"),
    _rule("net-version", "ipVersion: 6, source: {nets: [10.0.0.0/8]}", ".source.nets[0]", "IPv6 as ipVersion"),
    _source("port-alone", "ports: [80]", ".ports", "need protocol"),
    _source("port-range-alone", "notPorts: ['80:90']", ".notPorts", "need protocol"),
    _rule("port-icmp", "protocol: ICMP, source: {ports: [http]}", ".source.ports", "no ports"),
    _rule("port-0", "protocol: TCP, source: {ports: [0]}", ".source.ports[0]", "not be 0"),
    _rule("port-from-0", "protocol: TCP, source: {ports: ['0:9']}", ".source.ports[0]", "not be 0"),
    _rule("port-range", "protocol: TCP, source: {ports: ['90:80']}", ".source.ports[0]", "min:max"),
    _rule("port-large", "protocol: TCP, source: {ports: [65536]}", ".source.ports[0]", "65535"),
    _rule("port-name", "protocol: TCP, source: {ports: [Web_Port]}", ".source.ports[0]", "lower-case"),
    _rule("port-float", "protocol: TCP, source: {ports: [80.5]}", ".source.ports[0]", "whole number"),
    _rule("ports-many", f"protocol: TCP, source: {{ports: {list(range(1, 52))}}}", ".source.ports", "50"),
    _source("selector-of-rule", "selector: 'has('", ".selector", "selector"),
    _source("selector-not", "notSelector: 'global()'", ".notSelector", "global()"),
    _source("namespaces", "namespaceSelector: '!global()'", ".namespaceSelector", "whole"),
    _source("account", "serviceAccounts: {selector: 'a b'}", ".serviceAccounts.selector", "selector"),
    _source("service-unnamed", "services: {namespace: a}", ".services.name", "name a service"),
    _source("service-name", "services: {name: A}", ".services.name", "lower-case"),
    _source("service-and-net", "services: {name: a}, nets: [10.0.0.0/8]", ".nets", "services"),
    _source("service-and-selector", "services: {name: a}, selector: all()", ".selector", "services"),
    _source("service-and-account", "services: {name: a}, serviceAccounts: {names: [b]}", ".serviceAccounts", "services"),
    _rule("service-wrong-side", "destination: {services: {name: a}}", ".destination.services", "source of ingress"),
    _np("service-egress", "egress: [{action: Allow, source: {services: {name: a}}}]", f"{OUT}.source.services", "destination of egress"),
    _np("service-port", "egress: [{action: Allow, protocol: TCP, destination: {services: {name: a}, ports: [1]}}]", f"{OUT}.destination.ports", "services"),
    _np("http-egress", "egress: [{action: Allow, http: {methods: [GET]}}]", f"{OUT}.http", "egress"),
    _np("http-deny", "ingress: [{action: Deny, http: {methods: [GET]}}]", f"{IN}.http", "Allow only"),
    _rule("unknown-in-rule", "sourcePort: 1", ".sourcePort", "no such field"),
    _gnp("name", "", "metadata.name", "at most one dot", "name: knp.default.web.x"),
    _gnp("namespaces", "namespaceSelector: 'a in b'", "spec.namespaceSelector", "selector"),
    _gnp("namespaces-global", "namespaceSelector: global()", "spec.namespaceSelector", "global()"),
    _gnp("untracked", "doNotTrack: true", "spec.applyOnForward", "doNotTrack"),
    _gnp("pre-dnat", "preDNAT: true", "spec.applyOnForward", "preDNAT"),
    _gnp("both", "preDNAT: true, doNotTrack: true, applyOnForward: true", "spec.preDNAT", "doNotTrack"),
    _gnp("pre-dnat-egress", "preDNAT: true, applyOnForward: true, types: [Ingress], egress: [{action: Deny}]", "spec.egress", "preDNAT"),
    _gnp("pre-dnat-type", "preDNAT: true, applyOnForward: true, types: [Egress]", "spec.types[0]", "preDNAT"),
    _gnp("service-namespace", "ingress: [{action: Allow, source: {services: {name: a}}}]", f"{IN}.source.services.namespace", "required"),
    _of("StagedNetworkPolicy", "action", "stagedAction: set", "spec.stagedAction", "Learn"),
    _of("StagedNetworkPolicy", "delete", "stagedAction: Delete, order: 5", "spec.order", "Delete"),
    _of("StagedNetworkPolicy", "rule", "ingress: [{action: allow}]", f"{IN}.action", "Allow"),
    _of("StagedNetworkPolicy", "name", "", "metadata.name", "at most one dot", "name: a.b.c"),
    _of("StagedGlobalNetworkPolicy", "action", "stagedAction: Drop", "spec.stagedAction", "Ignore"),
    _of("StagedGlobalNetworkPolicy", "delete", "stagedAction: Delete, selector: all()", "spec.selector", "Delete"),
    _of("StagedGlobalNetworkPolicy", "untracked", "doNotTrack: true", "spec.applyOnForward", "doNotTrack"),
    _of("StagedKubernetesNetworkPolicy", "action", "stagedAction: Now", "spec.stagedAction", "Set"),
    _of("StagedKubernetesNetworkPolicy", "delete", "stagedAction: Delete, podSelector: {matchLabels: {a: b}}", "spec.podSelector", "Delete"),
    _of("StagedKubernetesNetworkPolicy", "type", "policyTypes: [Both]", "spec.policyTypes[0]", "Egress"),
    _of("StagedKubernetesNetworkPolicy", "operator", "podSelector: {matchExpressions: [{key: a, operator: Is}]}", "spec.podSelector.matchExpressions[0].operator", "NotIn"),
    _of("StagedKubernetesNetworkPolicy", "values", "podSelector: {matchExpressions: [{key: a, operator: In}]}", "spec.podSelector.matchExpressions[0].values", "In and NotIn"),
    _of("StagedKubernetesNetworkPolicy", "port", "ingress: [{ports: [{port: 0}]}]", "spec.ingress[0].ports[0].port", "1 to 65535"),
    _of("StagedKubernetesNetworkPolicy", "end-port", "ingress: [{ports: [{port: 9, endPort: 8}]}]", "spec.ingress[0].ports[0].endPort", "9 to 65535"),
    _of("StagedKubernetesNetworkPolicy", "block", "egress: [{to: [{ipBlock: {cidr: x}}]}]", "spec.egress[0].to[0].ipBlock.cidr", "CIDR"),
    _of("StagedKubernetesNetworkPolicy", "except", "ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [y]}}]}]", "spec.ingress[0].from[0].ipBlock.except[0]", "CIDR"),
    _of("Tier", "name", "", "metadata.name", "one DNS label", "name: a.b"),
    _of("Tier", "name-long", "", "metadata.name", "63", f"name: {'a' * 64}"),
    _of("Tier", "action", "defaultAction: Allow", "spec.defaultAction", "Pass"),
    _of("Tier", "order", "order: '10'", "spec.order", "number"),
    _of("Tier", "default-order", "order: 5", "spec.order", "always 1000000", "name: default"),
    _of("Tier", "default-action", "order: 1000000, defaultAction: Pass", "spec.defaultAction", "always Deny", "name: default"),
    _of("Tier", "admin-action", "order: 1000, defaultAction: Deny", "spec.defaultAction", "always Pass", "name: kube-admin"),
    _of("Profile", "rule", "ingress: [{action: Permit}]", f"{IN}.action", "Allow"),
    _of("Profile", "label", "labelsToApply: {'a/b/c': d}", "spec.labelsToApply[a/b/c]", "dns.prefix"),
    _of("Profile", "label-text", "labelsToApply: {a: 1}", "spec.labelsToApply[a]", "text"),
    _of("Profile", "order", "order: 1", "spec.order", "no such field"),
    _of("NetworkSet", "net", "nets: [10.0.0.0/8, x]", "spec.nets[1]", "CIDR"),
    _of("NetworkSet", "label", "", "metadata.labels[projectcalico.org/namespace]", "system", "name: a, namespace: b, labels: {projectcalico.org/namespace: b}"),
    _of("GlobalNetworkSet", "net", "nets: ['fd00::/129']", "spec.nets[0]", "CIDR"),
    _of("GlobalNetworkSet", "net-number", "nets: [10]", "spec.nets[0]", "text"),
    _of("GlobalNetworkSet", "label", "", "metadata.labels[projectcalico.org/namespace]", "system", "name: a, labels: {projectcalico.org/namespace: b}"),
]  # fmt: skip


def _good(kind: str, id_: str, spec: str, metadata: str = "") -> Taken:
    return Taken(f"{kind}-{id_}", document(kind, spec, metadata))


def _good_rule(id_: str, rule: str) -> Taken:
    return _good("NetworkPolicy", id_, f"ingress: [{{action: Allow, {rule}}}]")


TAKEN = [
    _good("NetworkPolicy", "empty", ""),
    _good("NetworkPolicy", "generate-name", "", "name: a, generateName: a-"),
    _good("NetworkPolicy", "name-with-tier", "tier: a", "name: a.b"),
    _good("NetworkPolicy", "name-of-kubernetes", "", "name: knp.default.web.v1.x"),
    _good("NetworkPolicy", "name-long", "", f"name: {'a' * 253}"),
    _good("NetworkPolicy", "labels", "", "name: a, labels: {example.com/a_B.c: '', x: y}"),
    _good("NetworkPolicy", "annotation-case", "", "name: a, annotations: {Example.Com/A: any thing}"),
    _good("NetworkPolicy", "order-fraction", "order: -0.5"),
    _good("NetworkPolicy", "types-empty", "types: []"),
    _good("NetworkPolicy", "account-names", "egress: [{action: Log, source: {serviceAccounts: {names: [Any_Name]}}}]"),
    _good("NetworkPolicy", "service", "egress: [{action: Allow, destination: {services: {name: a, namespace: b}}}]"),
    _good_rule("protocol-text", "protocol: '6', destination: {ports: ['80', '1:65535', http]}"),
    _good_rule("port-single-range", "protocol: 132, destination: {ports: ['80:80']}"),
    _good_rule("ports-named", "source: {ports: [http, x-1], notPorts: [dns]}"),
    _good_rule("icmp-0", "protocol: ICMP, icmp: {type: 0, code: 0}"),
    _good_rule("icmp-numbers", "protocol: 58, ipVersion: 6, notICMP: {type: 254, code: 255}"),
    _good_rule("not-icmp-alone", "notICMP: {type: 1}"),
    _good_rule("nets-256", f"source: {{nets: {[f'10.0.{i}.0/24' for i in range(256)]}}}"),
    _good_rule("everything", "source: {nets: [0.0.0.0/0], notNets: [10.0.0.0/8]}"),
    _good_rule("global", "source: {namespaceSelector: ' global( ) ', selector: has(a)}"),
    _good_rule("empty-sides", "source: {}, destination: {}"),
    _good_rule("source-ports-with-service", "protocol: TCP, source: {services: {name: a}, ports: [1]}"),
    _good_rule("http", "protocol: 6, http: {methods: [GET, get], paths: [{exact: /}, {prefix: /a/b}]}"),
    _good_rule("annotations", "metadata: {annotations: {a/b: c}}"),
    _good("GlobalNetworkPolicy", "pre-dnat", "preDNAT: true, applyOnForward: true, types: [Ingress]"),
    _good("GlobalNetworkPolicy", "untracked", "doNotTrack: true, applyOnForward: true, egress: [{action: Pass}]"),
    _good("GlobalNetworkPolicy", "name", "performanceHints: [AssumeNeededOnEveryNode]", "name: a-tier.web"),
    _good("GlobalNetworkPolicy", "nested-selector", f"selector: '{'(' * 500}has(a){')' * 500}'"),
    _good("StagedNetworkPolicy", "delete", "stagedAction: Delete, tier: a"),
    _good("StagedNetworkPolicy", "learn", "stagedAction: Learn, ingress: [{action: Allow}]"),
    _good("StagedGlobalNetworkPolicy", "empty", ""),
    _good("StagedGlobalNetworkPolicy", "delete", "stagedAction: Delete"),
    _good("StagedKubernetesNetworkPolicy", "delete", "stagedAction: Delete"),
    _good("StagedKubernetesNetworkPolicy", "all", "podSelector: {}, policyTypes: [Egress], ingress: [{ports: [{port: http}, {protocol: SCTP, port: 1, endPort: 65535}], from: [{podSelector: {}, namespaceSelector: {matchExpressions: [{key: a, operator: Exists}]}}]}]"),
    _good("Tier", "default", "order: 1000000, defaultAction: Deny", "name: default"),
    _good("Tier", "default-bare", "", "name: default"),
    _good("Tier", "name-63", "order: 0.5", f"name: {'a' * 63}"),
    _good("Profile", "services", "egress: [{action: Allow, source: {selector: has(a)}}], labelsToApply: {a: ''}"),
    _good("NetworkSet", "bits", "nets: [10.0.0.1/8, 10.0.0.1, 'fd00::1/64', 10.0.0.1]"),
    _good("GlobalNetworkSet", "empty", ""),
]  # fmt: skip
