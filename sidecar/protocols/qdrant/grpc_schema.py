"""The requests of Qdrant's gRPC interface, from the public definitions of Qdrant 1.20, as far as
`grpc_routes.py` reads them (`sidecar/http/grpc/schema.py` has the form). A test compares them with
the descriptors inside the official client.

Every string that names a collection has the mark `@collection`. Nothing else in a request can lead
to another collection: a shard key selects a part of the one that is named beside it. Vectors, the
documents and configurations that are written, and what embeds a text stay undecoded (`raw`).
"""

from sidecar.http.grpc.protobuf import Schema

_RETRIEVALS = """
GetPoints
    1 collection_name string @collection; 2 ids PointId*; 4 with_payload WithPayloadSelector
    5 with_vectors WithVectorsSelector; 6 read_consistency ReadConsistency
    7 shard_key_selector ShardKeySelector; 8 timeout uint64 ?
SearchPoints
    1 collection_name string @collection; 2 vector float*; 3 filter Filter; 4 limit uint64
    6 with_payload WithPayloadSelector; 7 params SearchParams; 8 score_threshold float ?
    9 offset uint64 ?; 10 vector_name string ?; 11 with_vectors WithVectorsSelector
    12 read_consistency ReadConsistency; 13 timeout uint64 ?
    14 shard_key_selector ShardKeySelector; 15 sparse_indices raw
SearchBatchPoints
    1 collection_name string @collection; 2 search_points SearchPoints*
    3 read_consistency ReadConsistency; 4 timeout uint64 ?
SearchPointGroups
    1 collection_name string @collection; 2 vector float*; 3 filter Filter; 4 limit uint32
    5 with_payload WithPayloadSelector; 6 params SearchParams; 7 score_threshold float ?
    8 vector_name string ?; 9 with_vectors WithVectorsSelector; 10 group_by string
    11 group_size uint32; 12 read_consistency ReadConsistency; 13 with_lookup WithLookup
    14 timeout uint64 ?; 15 shard_key_selector ShardKeySelector; 16 sparse_indices raw
ScrollPoints
    1 collection_name string @collection; 2 filter Filter; 3 offset PointId; 4 limit uint32 ?
    6 with_payload WithPayloadSelector; 7 with_vectors WithVectorsSelector
    8 read_consistency ReadConsistency; 9 shard_key_selector ShardKeySelector; 10 order_by OrderBy
    11 timeout uint64 ?
RecommendPoints
    1 collection_name string @collection; 2 positive PointId*; 3 negative PointId*; 4 filter Filter
    5 limit uint64; 7 with_payload WithPayloadSelector; 8 params SearchParams
    9 score_threshold float ?; 10 offset uint64 ?; 11 using string ?
    12 with_vectors WithVectorsSelector; 13 lookup_from LookupLocation
    14 read_consistency ReadConsistency; 16 strategy enum ?; 17 positive_vectors raw*
    18 negative_vectors raw*; 19 timeout uint64 ?; 20 shard_key_selector ShardKeySelector
RecommendBatchPoints
    1 collection_name string @collection; 2 recommend_points RecommendPoints*
    3 read_consistency ReadConsistency; 4 timeout uint64 ?
RecommendPointGroups
    1 collection_name string @collection; 2 positive PointId*; 3 negative PointId*; 4 filter Filter
    5 limit uint32; 6 with_payload WithPayloadSelector; 7 params SearchParams
    8 score_threshold float ?; 9 using string ?; 10 with_vectors WithVectorsSelector
    11 lookup_from LookupLocation; 12 group_by string; 13 group_size uint32
    14 read_consistency ReadConsistency; 15 with_lookup WithLookup; 17 strategy enum ?
    18 positive_vectors raw*; 19 negative_vectors raw*; 20 timeout uint64 ?
    21 shard_key_selector ShardKeySelector
DiscoverPoints
    1 collection_name string @collection; 2 target TargetVector; 3 context ContextExamplePair*
    4 filter Filter; 5 limit uint64; 6 with_payload WithPayloadSelector; 7 params SearchParams
    8 offset uint64 ?; 9 using string ?; 10 with_vectors WithVectorsSelector
    11 lookup_from LookupLocation; 12 read_consistency ReadConsistency; 13 timeout uint64 ?
    14 shard_key_selector ShardKeySelector
DiscoverBatchPoints
    1 collection_name string @collection; 2 discover_points DiscoverPoints*
    3 read_consistency ReadConsistency; 4 timeout uint64 ?
CountPoints
    1 collection_name string @collection; 2 filter Filter; 3 exact bool ?
    4 read_consistency ReadConsistency; 5 shard_key_selector ShardKeySelector; 6 timeout uint64 ?
QueryPoints
    1 collection_name string @collection; 2 prefetch PrefetchQuery*; 3 query Query
    4 using string ?; 5 filter Filter; 6 params SearchParams; 7 score_threshold float ?
    8 limit uint64 ?; 9 offset uint64 ?; 10 with_vectors WithVectorsSelector
    11 with_payload WithPayloadSelector; 12 read_consistency ReadConsistency
    13 shard_key_selector ShardKeySelector; 14 lookup_from LookupLocation; 15 timeout uint64 ?
QueryBatchPoints
    1 collection_name string @collection; 2 query_points QueryPoints*
    3 read_consistency ReadConsistency; 4 timeout uint64 ?
QueryPointGroups
    1 collection_name string @collection; 2 prefetch PrefetchQuery*; 3 query Query
    4 using string ?; 5 filter Filter; 6 params SearchParams; 7 score_threshold float ?
    8 with_payload WithPayloadSelector; 9 with_vectors WithVectorsSelector
    10 lookup_from LookupLocation; 11 limit uint64 ?; 12 group_size uint64 ?; 13 group_by string
    14 read_consistency ReadConsistency; 15 with_lookup WithLookup; 16 timeout uint64 ?
    17 shard_key_selector ShardKeySelector
FacetCounts
    1 collection_name string @collection; 2 key string; 3 filter Filter; 4 limit uint64 ?
    5 exact bool ?; 6 timeout uint64 ?; 7 read_consistency ReadConsistency
    8 shard_key_selector ShardKeySelector
SearchMatrixPoints
    1 collection_name string @collection; 2 filter Filter; 3 sample uint64 ?; 4 limit uint64 ?
    5 using string ?; 6 timeout uint64 ?; 7 read_consistency ReadConsistency
    8 shard_key_selector ShardKeySelector
"""

_PARTS = """
PointId
    oneof point_id_options
        1 num uint64; 2 uuid string
WithPayloadSelector
    oneof selector_options
        1 enable bool; 2 include PayloadIncludeSelector; 3 exclude PayloadExcludeSelector
WithVectorsSelector
    oneof selector_options
        1 enable bool; 2 include VectorsSelector
ReadConsistency
    oneof value
        1 type enum; 2 factor uint64
ShardKeySelector
    1 shard_keys ShardKey*; 2 fallback ShardKey
SearchParams
    1 hnsw_ef uint64 ?; 2 exact bool ?; 3 quantization QuantizationSearchParams
    4 indexed_only bool ?; 5 acorn AcornSearchParams; 6 idf IdfParams
WithLookup
    1 collection string @collection; 2 with_payload WithPayloadSelector
    3 with_vectors WithVectorsSelector
OrderBy
    1 key string; 2 direction enum ?; 3 start_from StartFrom
LookupLocation
    1 collection_name string @collection; 2 vector_name string ?
    3 shard_key_selector ShardKeySelector
TargetVector
    oneof target
        1 single VectorExample
ContextExamplePair
    1 positive VectorExample; 2 negative VectorExample
PrefetchQuery
    1 prefetch PrefetchQuery*; 2 query Query; 3 using string ?; 4 filter Filter
    5 params SearchParams; 6 score_threshold float ?; 7 limit uint64 ?
    8 lookup_from LookupLocation
Query
    oneof variant
        1 nearest VectorInput; 2 recommend RecommendInput; 3 discover DiscoverInput
        4 context ContextInput; 5 order_by OrderBy; 6 fusion enum; 7 sample enum; 8 formula Formula
        9 nearest_with_mmr NearestInputWithMmr; 10 rrf Rrf
        11 relevance_feedback RelevanceFeedbackInput; 12 text TextQuery
PayloadIncludeSelector
    1 fields string*
PayloadExcludeSelector
    1 fields string*
VectorsSelector
    1 names string*
ShardKey
    oneof key
        1 keyword string; 2 number uint64
QuantizationSearchParams
    1 ignore bool ?; 2 rescore bool ?; 3 oversampling double ?
AcornSearchParams
    1 enable bool ?; 2 max_selectivity double ?
IdfParams
    1 corpus Filter
StartFrom
    oneof value
        1 float double; 2 integer int64; 3 timestamp Timestamp; 4 datetime string
VectorExample
    oneof example
        1 id PointId; 2 vector raw
VectorInput
    oneof variant
        1 id PointId; 2 dense raw; 3 sparse raw; 4 multi_dense raw; 5 document raw; 6 image raw
        7 object raw
RecommendInput
    1 positive VectorInput*; 2 negative VectorInput*; 3 strategy enum ?
DiscoverInput
    1 target VectorInput; 2 context ContextInput
ContextInput
    1 pairs ContextInputPair*
Formula
    1 expression Expression; 2 defaults map<string, raw>
NearestInputWithMmr
    1 nearest VectorInput; 2 mmr Mmr
Rrf
    1 k uint32 ?; 2 weights float*
RelevanceFeedbackInput
    1 target VectorInput; 2 feedback FeedbackItem*; 3 strategy FeedbackStrategy
TextQuery
    1 query string
    oneof scoring
        2 bm25 Bm25Params
ContextInputPair
    1 positive VectorInput; 2 negative VectorInput
Expression
    oneof variant
        1 constant float; 2 variable string; 3 condition Condition; 4 geo_distance GeoDistance
        5 datetime string; 6 datetime_key string; 7 mult MultExpression; 8 sum SumExpression
        9 div DivExpression; 10 neg Expression; 11 abs Expression; 12 sqrt Expression
        13 pow PowExpression; 14 exp Expression; 15 log10 Expression; 16 ln Expression
        17 exp_decay DecayParamsExpression; 18 gauss_decay DecayParamsExpression
        19 lin_decay DecayParamsExpression; 20 acosh Expression; 21 max MaxExpression
        22 min MinExpression
Mmr
    2 diversity float ?; 3 candidates_limit uint32 ?
FeedbackItem
    1 example VectorInput; 2 score float
FeedbackStrategy
    oneof variant
        1 naive NaiveFeedbackStrategy
Bm25Params
    1 k float ?; 2 b float ?
GeoDistance
    1 origin GeoPoint; 2 to string
MultExpression
    1 mult Expression*
SumExpression
    1 sum Expression*
DivExpression
    1 left Expression; 2 right Expression; 3 by_zero_default float ?
PowExpression
    1 base Expression; 2 exponent Expression
DecayParamsExpression
    1 x Expression; 2 target Expression; 3 scale float ?; 4 midpoint float ?
MaxExpression
    1 max Expression*
MinExpression
    1 min Expression*
NaiveFeedbackStrategy
    1 a float; 2 b float; 3 c float
"""

_FILTERS = """
Filter
    1 should Condition*; 2 must Condition*; 3 must_not Condition*; 4 min_should MinShould
Condition
    oneof condition_one_of
        1 field FieldCondition; 2 is_empty IsEmptyCondition; 3 has_id HasIdCondition
        4 filter Filter; 5 is_null IsNullCondition; 6 nested NestedCondition
        7 has_vector HasVectorCondition; 8 slice SliceCondition
MinShould
    1 conditions Condition*; 2 min_count uint64
FieldCondition
    1 key string; 2 match Match; 3 range Range; 4 geo_bounding_box GeoBoundingBox
    5 geo_radius GeoRadius; 6 values_count ValuesCount; 7 geo_polygon GeoPolygon
    8 datetime_range DatetimeRange; 9 is_empty bool ?; 10 is_null bool ?
IsEmptyCondition
    1 key string
IsNullCondition
    1 key string
HasIdCondition
    1 has_id PointId*
HasVectorCondition
    1 has_vector string
NestedCondition
    1 key string; 2 filter Filter
SliceCondition
    1 total uint32; 2 index uint32
Match
    oneof match_value
        1 keyword string; 2 integer int64; 3 boolean bool; 4 text string
        5 keywords RepeatedStrings; 6 integers RepeatedIntegers; 7 except_integers RepeatedIntegers
        8 except_keywords RepeatedStrings; 9 phrase string; 10 text_any string; 11 prefix string
        12 substring string
RepeatedStrings
    1 strings string*
RepeatedIntegers
    1 integers int64*
Range
    1 lt double ?; 2 gt double ?; 3 gte double ?; 4 lte double ?
DatetimeRange
    1 lt Timestamp; 2 gt Timestamp; 3 gte Timestamp; 4 lte Timestamp
Timestamp
    1 seconds int64; 2 nanos int32
GeoBoundingBox
    1 top_left GeoPoint; 2 bottom_right GeoPoint
GeoRadius
    1 center GeoPoint; 2 radius float
GeoPolygon
    1 exterior GeoLineString; 2 interiors GeoLineString*
GeoLineString
    1 points GeoPoint*
GeoPoint
    1 lon double; 2 lat double
ValuesCount
    1 lt uint64 ?; 2 gt uint64 ?; 3 gte uint64 ?; 4 lte uint64 ?
"""

# `CollectionName` stands for the six messages that have only a name, `Empty` for those without a
# field.
_COLLECTIONS = """
CollectionName
    1 collection_name string @collection
Empty
Health
    1 service string
"""

_WRITES = """
UpsertPoints
    1 collection_name string @collection; 2 wait bool ?; 3 points PointStruct*
    4 ordering WriteOrdering; 5 shard_key_selector ShardKeySelector; 6 update_filter Filter
    7 timeout uint64 ?; 8 update_mode enum ?
DeletePoints
    1 collection_name string @collection; 2 wait bool ?; 3 points PointsSelector
    4 ordering WriteOrdering; 5 shard_key_selector ShardKeySelector; 6 timeout uint64 ?
UpdatePointVectors
    1 collection_name string @collection; 2 wait bool ?; 3 points PointVectors*
    4 ordering WriteOrdering; 5 shard_key_selector ShardKeySelector; 6 update_filter Filter
    7 timeout uint64 ?
DeletePointVectors
    1 collection_name string @collection; 2 wait bool ?; 3 points_selector PointsSelector
    4 vectors VectorsSelector; 5 ordering WriteOrdering; 6 shard_key_selector ShardKeySelector
    7 timeout uint64 ?
SetPayloadPoints
    1 collection_name string @collection; 2 wait bool ?; 3 payload raw*
    5 points_selector PointsSelector; 6 ordering WriteOrdering
    7 shard_key_selector ShardKeySelector; 8 key string ?; 9 timeout uint64 ?
DeletePayloadPoints
    1 collection_name string @collection; 2 wait bool ?; 3 keys string*
    5 points_selector PointsSelector; 6 ordering WriteOrdering
    7 shard_key_selector ShardKeySelector; 8 timeout uint64 ?
ClearPayloadPoints
    1 collection_name string @collection; 2 wait bool ?; 3 points PointsSelector
    4 ordering WriteOrdering; 5 shard_key_selector ShardKeySelector; 6 timeout uint64 ?
CreateFieldIndexCollection
    1 collection_name string @collection; 2 wait bool ?; 3 field_name string; 4 field_type enum ?
    5 field_index_params raw; 6 ordering WriteOrdering; 7 timeout uint64 ?
DeleteFieldIndexCollection
    1 collection_name string @collection; 2 wait bool ?; 3 field_name string
    4 ordering WriteOrdering; 5 timeout uint64 ?
CreateVectorNameRequest
    1 collection_name string @collection; 2 wait bool ?; 3 vector_name string; 6 timeout uint64 ?
    7 ordering WriteOrdering
    oneof vector_config
        4 dense_config raw; 5 sparse_config raw
DeleteVectorNameRequest
    1 collection_name string @collection; 2 wait bool ?; 3 vector_name string; 4 timeout uint64 ?
    5 ordering WriteOrdering
UpdateBatchPoints
    1 collection_name string @collection; 2 wait bool ?; 3 operations PointsUpdateOperation*
    4 ordering WriteOrdering; 5 timeout uint64 ?
CreateCollection
    1 collection_name string @collection; 4 hnsw_config raw; 5 wal_config raw
    6 optimizers_config raw; 7 shard_number uint32 ?; 8 on_disk_payload bool ?; 9 timeout uint64 ?
    10 vectors_config raw; 11 replication_factor uint32 ?; 12 write_consistency_factor uint32 ?
    14 quantization_config raw; 15 sharding_method enum ?; 16 sparse_vectors_config raw
    17 strict_mode_config raw; 18 metadata raw*; 19 payload raw; 20 id_tracker raw
UpdateCollection
    1 collection_name string @collection; 2 optimizers_config raw; 3 timeout uint64 ?; 4 params raw
    5 hnsw_config raw; 6 vectors_config raw; 7 quantization_config raw; 8 sparse_vectors_config raw
    9 strict_mode_config raw; 10 metadata raw*
DeleteCollection
    1 collection_name string @collection; 2 timeout uint64 ?
PointStruct
    1 id PointId; 3 payload raw*; 4 vectors raw
WriteOrdering
    1 type enum
PointsSelector
    oneof points_selector_one_of
        1 points PointsIdsList; 2 filter Filter
PointVectors
    1 id PointId; 2 vectors raw
PointsUpdateOperation
    oneof operation
        1 upsert BatchPointStructList; 2 delete_deprecated PointsSelector
        3 set_payload BatchSetPayload; 4 overwrite_payload BatchSetPayload
        5 delete_payload BatchDeletePayload; 6 clear_payload_deprecated PointsSelector
        7 update_vectors BatchUpdateVectors; 8 delete_vectors BatchDeleteVectors
        9 delete_points BatchDeletePoints; 10 clear_payload BatchClearPayload
PointsIdsList
    1 ids PointId*
BatchPointStructList
    1 points PointStruct*; 2 shard_key_selector ShardKeySelector; 3 update_filter Filter
    4 update_mode enum ?
BatchSetPayload
    1 payload raw*; 2 points_selector PointsSelector; 3 shard_key_selector ShardKeySelector
    4 key string ?
BatchDeletePayload
    1 keys string*; 2 points_selector PointsSelector; 3 shard_key_selector ShardKeySelector
BatchUpdateVectors
    1 points PointVectors*; 2 shard_key_selector ShardKeySelector; 3 update_filter Filter
BatchDeleteVectors
    1 points_selector PointsSelector; 2 vectors VectorsSelector
    3 shard_key_selector ShardKeySelector
BatchDeletePoints
    1 points PointsSelector; 2 shard_key_selector ShardKeySelector
BatchClearPayload
    1 points PointsSelector; 2 shard_key_selector ShardKeySelector
"""

SCHEMA = Schema(_RETRIEVALS + _PARTS + _FILTERS + _COLLECTIONS + _WRITES)
"""The messages of requests."""
