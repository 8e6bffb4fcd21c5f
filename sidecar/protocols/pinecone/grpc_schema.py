"""The messages of Pinecone's `VectorService`, from its public definition (API 2025-10, which the
clients still call), as far as `grpc_routes.py` reads them (`sidecar/http/grpc/schema.py` has the
form). A test compares them with the descriptors inside an official client.

The names are those of the same members in REST, so that what reads a REST body reads a message too.
Vectors, and the records that are written, stay undecoded.
"""

from sidecar.http.grpc.protobuf import Schema

SCHEMA = Schema("""
QueryRequest
    1 namespace string @namespace; 2 topK uint32; 3 filter Struct; 4 includeValues bool
    5 includeMetadata bool; 6 queries QueryVector*; 7 vector float*; 8 id string
    9 sparseVector raw; 10 scanFactor float ?; 11 maxCandidates uint32 ?
QueryVector
    1 values float*; 2 topK uint32; 3 namespace string @namespace; 4 filter Struct
    5 sparseValues raw
FetchRequest
    1 ids string*; 2 namespace string @namespace
FetchByMetadataRequest
    1 namespace string @namespace; 2 filter Struct; 3 limit uint32 ?; 4 paginationToken string ?
ListRequest
    1 prefix string ?; 2 limit uint32 ?; 3 paginationToken string ?
    4 namespace string @namespace
DescribeIndexStatsRequest
    1 filter Struct
ListNamespacesRequest
    1 paginationToken string ?; 2 limit uint32 ?; 3 prefix string ?
DescribeNamespaceRequest
    1 namespace string @namespace
UpsertRequest
    1 vectors raw*; 2 namespace string @namespace
UpdateRequest
    1 id string; 2 values float*; 3 setMetadata raw; 4 namespace string @namespace
    5 sparseValues raw; 6 filter Struct; 7 dryRun bool ?
DeleteRequest
    1 ids string*; 2 deleteAll bool; 3 namespace string @namespace; 4 filter Struct
CreateNamespaceRequest
    1 name string @namespace; 2 schema raw
DeleteNamespaceRequest
    1 namespace string @namespace
HealthCheckRequest
    1 service string

Struct
    1 fields map<string, Value>
Value
    oneof kind
        1 null_value enum; 2 number_value double; 3 string_value string; 4 bool_value bool
        5 struct_value Struct; 6 list_value ListValue
ListValue
    1 values Value*
""")
"""The messages of requests."""

RESPONSES = Schema("""
QueryResponse
    1 results raw*; 2 matches ScoredVector*; 3 namespace string; 4 usage raw
ScoredVector
    1 id string; 2 score float; 3 values float*; 4 metadata raw; 5 sparseValues raw
FetchResponse
    1 vectors map<string, Vector>; 2 namespace string; 3 usage raw
FetchByMetadataResponse
    1 vectors map<string, Vector>; 2 namespace string; 3 usage raw; 4 pagination Pagination
Vector
    1 id string; 2 values float*; 3 metadata raw; 4 sparseValues raw
ListResponse
    1 vectors raw*; 2 pagination Pagination; 3 namespace string; 4 usage raw
Pagination
    1 next string
ListNamespacesResponse
    1 namespaces NamespaceDescription*; 2 pagination raw; 3 total_count int32
NamespaceDescription
    1 name string; 2 record_count uint64; 3 schema raw; 4 indexed_fields raw
DescribeIndexStatsResponse
    1 namespaces map<string, NamespaceSummary>; 2 dimension uint32 ?; 3 indexFullness float
    4 totalVectorCount uint32; 5 metric string ?; 6 vectorType string ?
    7 memory_fullness float ?; 8 storage_fullness float ?
NamespaceSummary
    1 vectorCount uint32

Struct
    1 fields map<string, raw>
Value
    oneof kind
        1 null_value enum; 2 number_value double; 3 string_value string; 4 bool_value bool
        5 struct_value Fields; 6 list_value ListValue
ListValue
    1 values Value*
Fields
    1 fields map<string, Value>
""")
"""The messages of responses that are read. A record's metadata are a `Struct`, of which only the
member with the level is decoded, as a `Value`: those of a large response have too many fields."""
