"""The fields of Milvus' messages of gRPC, as text (`sidecar/http/grpc/schema.py`): numbers, names
and types of the methods of `milvus.proto.milvus.MilvusService` that aren't closed
(`grpc_routes.py`).

A part that no decision depends on is `raw`. `tests/sidecar/protocols/milvus/test_grpc_schema.py`
compares the text with the definitions in the client's wheel, pymilvus 3.0, and finds what a newer
one adds.
"""

from sidecar.http.grpc.protobuf import Schema

_REQUESTS = """
HasCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 time_stamp uint64
LoadCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 replica_number int32; 5 resource_groups string*; 6 refresh bool; 7 load_fields string*
    8 skip_load_dynamic_field bool; 9 load_params map<string, string>
DescribeCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 time_stamp uint64
BatchDescribeCollectionRequest
    1 db_name string @database; 2 collection_name string* @collection; 3 collectionID int64*
GetCollectionStatisticsRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
ShowCollectionsRequest
    1 base raw; 2 db_name string @database; 3 time_stamp uint64; 4 type enum
    5 collection_names string* @collection
HasPartitionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_name string @partition
LoadPartitionsRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_names string* @partition; 5 replica_number int32; 6 resource_groups string*
    7 refresh bool; 8 load_fields string*; 9 skip_load_dynamic_field bool
    10 load_params map<string, string>
GetPartitionStatisticsRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_name string @partition
ShowPartitionsRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 partition_names string* @partition; 6 type enum
DescribeNamespaceRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 namespace_name string
ListNamespacesRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 prefix string; 5 page_size int64; 6 page_token string
HasNamespaceRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 namespace_name string
GetNamespaceStatsRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 namespace_name string; 5 exact bool
GetLoadingProgressRequest
    1 base raw; 2 collection_name string @collection; 3 partition_names string* @partition
    4 db_name string @database
GetLoadStateRequest
    1 base raw; 2 collection_name string @collection; 3 partition_names string* @partition
    4 db_name string @database
DescribeAliasRequest
    1 base raw; 2 db_name string @database; 3 alias string @alias
ListAliasesRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
DescribeIndexRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 field_name string; 5 index_name string; 6 timestamp uint64
GetIndexStatisticsRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 index_name string; 5 timestamp uint64
GetIndexStateRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 field_name string; 5 index_name string
GetIndexBuildProgressRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 field_name string; 5 index_name string
SearchRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_names string* @partition; 5 dsl string; 7 dsl_type enum; 8 output_fields string*
    9 search_params KeyValuePair*; 10 travel_timestamp uint64; 11 guarantee_timestamp uint64
    12 nq int64; 13 not_return_all_meta bool; 14 consistency_level enum
    15 use_default_consistency bool; 16 search_by_primary_keys bool; 17 sub_reqs raw*
    18 expr_template_values map<string, raw>; 19 function_score raw; 20 namespace string ?
    21 highlighter raw; 23 search_aggregation raw; 24 function_chains raw*
    oneof search_input
        6 placeholder_group raw; 22 ids raw
KeyValuePair
    1 key string; 2 value string
HybridSearchRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_names string* @partition; 5 requests SearchRequest*; 6 rank_params KeyValuePair*
    7 travel_timestamp uint64; 8 guarantee_timestamp uint64; 9 not_return_all_meta bool
    10 output_fields string*; 11 consistency_level enum; 12 use_default_consistency bool
    13 function_score raw; 14 namespace string ?; 15 function_chains raw*
QueryRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection; 4 expr string
    5 output_fields string*; 6 partition_names string* @partition; 7 travel_timestamp uint64
    8 guarantee_timestamp uint64; 9 query_params KeyValuePair*; 10 not_return_all_meta bool
    11 consistency_level enum; 12 use_default_consistency bool
    13 expr_template_values map<string, raw>; 14 namespace string ?
GetFlushStateRequest
    1 segmentIDs int64*; 2 flush_ts uint64; 3 db_name string @database
    4 collection_name string @collection
GetReplicasRequest
    1 base raw; 2 collectionID int64; 3 with_shard_nodes bool
    4 collection_name string @collection; 5 db_name string @database
ListDatabasesRequest
    1 base raw
DescribeDatabaseRequest
    1 base raw; 2 db_name string @database
PrewarmRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 namespace string ?; 5 replica_number int32; 6 resource_groups string*
    7 load_fields string*; 8 skip_load_dynamic_field bool; 9 load_params map<string, string>
    10 ttl_seconds int64; 11 priority string
CreateCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection; 4 schema bytes
    5 shards_num int32; 6 consistency_level enum; 7 properties KeyValuePair*
    8 num_partitions int64
DropCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
ReleaseCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
AlterCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 properties KeyValuePair*; 6 delete_keys string*
AlterCollectionFieldRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 field_name string; 5 properties KeyValuePair*; 6 delete_keys string*
AddCollectionFunctionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 functionSchema raw
AlterCollectionFunctionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 function_name string; 6 functionSchema raw
DropCollectionFunctionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 function_name string
TruncateCollectionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
CreatePartitionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_name string @partition
DropPartitionRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_name string @partition
ReleasePartitionsRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_names string* @partition
CreateNamespaceRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 namespace_name string
DropNamespaceRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 namespace_name string
CreateIndexRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 field_name string; 5 extra_params KeyValuePair*; 6 index_name string
AlterIndexRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 index_name string; 5 extra_params KeyValuePair*; 6 delete_keys string*
DropIndexRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 field_name string; 5 index_name string
InsertRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_name string @partition; 5 fields_data raw*; 6 hash_keys uint32*
    7 num_rows uint32; 8 schema_timestamp uint64; 9 namespace string ?
DeleteRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_name string @partition; 5 expr string; 6 hash_keys uint32*
    7 consistency_level enum; 8 expr_template_values map<string, raw>; 9 namespace string ?
UpsertRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 partition_name string @partition; 5 fields_data raw*; 6 hash_keys uint32*
    7 num_rows uint32; 8 schema_timestamp uint64; 9 partial_update bool; 10 namespace string ?
    11 field_ops raw*
FlushRequest
    1 base raw; 2 db_name string @database; 3 collection_names string* @collection
AddCollectionFieldRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 schema bytes
AddCollectionStructFieldRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 struct_array_field_schema raw
ManualCompactionRequest
    1 collectionID int64; 2 timetravel uint64; 3 majorCompaction bool
    4 collection_name string @collection; 5 db_name string @database; 6 partition_id int64
    7 channel string; 8 segment_ids int64*; 9 l0Compaction bool; 10 target_size int64
RenameCollectionRequest
    1 base raw; 2 db_name string @database; 3 oldName string @collection
    4 newName string @collection; 5 newDBName string @database
AlterCollectionSchemaRequest
    1 base raw; 2 db_name string @database; 3 collection_name string @collection
    4 collectionID int64; 5 action raw
CollectionSchema
    1 name string @collection; 2 description string; 3 autoID bool; 4 fields raw*
    5 enable_dynamic_field bool; 6 properties KeyValuePair*; 7 functions raw*
    8 dbName string @database; 9 struct_array_fields raw*; 10 version int32
    11 external_source string; 12 external_spec string; 13 do_physical_backfill bool
    14 file_resource_ids int64*; 15 enable_namespace bool
"""

_RESPONSES = """
DescribeAliasResponse
    1 status Status; 2 db_name string; 3 alias string; 4 collection string
Status
    1 error_code enum; 2 reason string; 3 code int32; 4 retriable bool; 5 detail string
    6 extra_info map<string, string>
ShowCollectionsResponse
    1 status raw; 2 collection_names string*; 3 collection_ids int64*
    4 created_timestamps uint64*; 5 created_utc_timestamps uint64*
    6 inMemory_percentages int64*; 7 query_service_available bool*; 8 shards_num int32*
ListDatabasesResponse
    1 status raw; 2 db_names string*; 3 created_timestamp uint64*; 4 db_ids int64*
ShowPartitionsResponse
    1 status raw; 2 partition_names string*; 3 partitionIDs int64*
    4 created_timestamps uint64*; 5 created_utc_timestamps uint64*
    6 inMemory_percentages int64*
SearchResults
    1 status raw; 2 results SearchResultData; 3 collection_name string
    4 session_ts uint64
SearchResultData
    1 num_queries int64; 2 top_k int64; 3 fields_data FieldData*; 4 scores float*; 5 ids IDs
    6 topks int64*; 7 output_fields string*; 8 group_by_field_value FieldData
    9 all_search_count int64; 10 distances float*
    11 search_iterator_v2_results SearchIteratorV2Results; 12 recalls float*
    13 primary_field_name string; 14 highlight_results raw*; 15 element_indices LongArray
    17 group_by_field_values FieldData*; 18 agg_buckets raw*; 19 agg_topks int64*
FieldData
    1 type enum; 2 field_name string; 5 field_id int64; 6 is_dynamic bool; 7 valid_data bool*
    oneof field
        3 scalars ScalarField; 4 vectors VectorField; 8 struct_arrays StructArrayField
ScalarField
    oneof data
        1 bool_data BoolArray; 2 int_data IntArray; 3 long_data LongArray
        4 float_data FloatArray; 5 double_data DoubleArray; 6 string_data StringArray
        7 bytes_data BytesArray; 8 array_data ArrayArray; 9 json_data JSONArray
        10 geometry_data GeometryArray; 11 timestamptz_data TimestamptzArray
        12 geometry_wkt_data GeometryWktArray; 13 mol_data MolArray
        14 mol_smiles_data MolSmilesArray; 15 date_data DateArray; 16 time_data TimeArray
BoolArray
    1 data bool*
IntArray
    1 data int32*
LongArray
    1 data int64*
FloatArray
    1 data float*
DoubleArray
    1 data double*
StringArray
    1 data string*
BytesArray
    1 data bytes*
ArrayArray
    1 data ScalarField*; 2 element_type enum
JSONArray
    1 data bytes*
GeometryArray
    1 data bytes*
TimestamptzArray
    1 data int64*
GeometryWktArray
    1 data string*
MolArray
    1 data bytes*
MolSmilesArray
    1 data string*
DateArray
    1 data int32*
TimeArray
    1 data int64*
VectorField
    1 dim int64
    oneof data
        2 float_vector FloatArray; 3 binary_vector bytes; 4 float16_vector bytes
        5 bfloat16_vector bytes; 6 sparse_float_vector SparseFloatArray; 7 int8_vector bytes
        8 vector_array VectorArray
SparseFloatArray
    1 contents bytes*; 2 dim int64
VectorArray
    1 dim int64; 2 data VectorField*; 3 element_type enum
StructArrayField
    1 fields FieldData*
IDs
    oneof id_field
        1 int_id LongArray; 2 str_id StringArray
SearchIteratorV2Results
    1 token string; 2 last_bound float
QueryResults
    1 status raw; 2 fields_data FieldData*; 3 collection_name string
    4 output_fields string*; 5 session_ts uint64; 6 primary_field_name string
    7 element_indices raw*
"""

REQUESTS = Schema(_REQUESTS)
RESPONSES = Schema(_RESPONSES)
