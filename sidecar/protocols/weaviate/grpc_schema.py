"""The messages of Weaviate's gRPC API, as far as they are read: all requests, and the responses
that are filtered (`weaviate.v1`, as in weaviate-client 4.23; `sidecar/http/grpc/schema.py`
describes the form). A nested message has the names of those around it in front of its own. An
object's own data in a write is `raw`, and so is whatever is never looked into in a response.

What a marked string names:

    collection  a collection, or an alias
    tenant      a tenant of the collection
    path        a property, or a reference, the collection it leads to, and so on (`names.py`)
    reference   a property that leads to another collection, which only the definition shows
"""

from sidecar.http.grpc.protobuf import Schema

_SEARCH = """
SearchRequest
    1 collection string @collection; 10 tenant string @tenant; 11 consistency_level enum ?
    20 properties PropertiesRequest; 21 metadata MetadataRequest; 22 group_by GroupBy
    30 limit uint32; 31 offset uint32; 32 autocut uint32; 33 after string; 34 sort_by SortBy*
    40 filters Filters; 41 hybrid_search Hybrid; 42 bm25_search BM25; 43 near_vector NearVector
    44 near_object NearObject; 45 near_text NearTextSearch; 46 near_image NearImageSearch
    47 near_audio NearAudioSearch; 48 near_video NearVideoSearch; 49 near_depth NearDepthSearch
    50 near_thermal NearThermalSearch; 51 near_imu NearIMUSearch; 60 generative GenerativeSearch
    61 rerank Rerank; 62 boost Boost; 100 uses_123_api bool; 101 uses_125_api bool
    102 uses_127_api bool
PropertiesRequest
    1 non_ref_properties string*; 2 ref_properties RefPropertiesRequest*
    3 object_properties ObjectPropertiesRequest*; 11 return_all_nonref_properties bool
RefPropertiesRequest
    1 reference_property string @reference; 2 properties PropertiesRequest
    3 metadata MetadataRequest; 4 target_collection string @collection
MetadataRequest
    1 uuid bool; 2 vector bool; 3 creation_time_unix bool; 4 last_update_time_unix bool
    5 distance bool; 6 certainty bool; 7 score bool; 8 explain_score bool; 9 is_consistent bool
    10 vectors string*; 11 query_profile bool
ObjectPropertiesRequest
    1 prop_name string; 2 primitive_properties string*
    3 object_properties ObjectPropertiesRequest*
GroupBy
    1 path string* @path; 2 number_of_groups int32; 3 objects_per_group int32
SortBy
    1 ascending bool; 2 path string* @path
Filters
    1 operator enum; 2 on string* @path; 3 filters Filters*; 20 target FilterTarget
    oneof test_value
        4 value_text string; 5 value_int int64; 6 value_boolean bool; 7 value_number double
        9 value_text_array TextArray; 10 value_int_array IntArray
        11 value_boolean_array BooleanArray; 12 value_number_array NumberArray
        13 value_geo GeoCoordinatesFilter
TextArray
    1 values string*
IntArray
    1 values int64*
BooleanArray
    1 values bool*
NumberArray
    1 values double*
GeoCoordinatesFilter
    1 latitude float; 2 longitude float; 3 distance float
FilterTarget
    oneof target
        1 property string; 2 single_target FilterReferenceSingleTarget
        3 multi_target FilterReferenceMultiTarget; 4 count FilterReferenceCount
FilterReferenceSingleTarget
    1 on string @reference; 2 target FilterTarget
FilterReferenceMultiTarget
    1 on string; 2 target FilterTarget; 3 target_collection string @collection
FilterReferenceCount
    1 on string
Hybrid
    1 query string; 2 properties string*; 3 vector float*; 4 alpha float; 5 fusion_type enum
    6 vector_bytes bytes; 7 target_vectors string*; 8 near_text NearTextSearch
    9 near_vector NearVector; 10 targets Targets; 11 bm25_search_operator SearchOperatorOptions
    12 alpha_param float ?; 13 use_alpha_param bool; 14 selection Selection; 21 vectors Vectors*
    oneof threshold
        20 vector_distance float
NearTextSearch
    1 query string*; 2 certainty double ?; 3 distance double ?; 4 move_to NearTextSearchMove
    5 move_away NearTextSearchMove; 6 target_vectors string*; 7 targets Targets
    8 selection Selection
NearTextSearchMove
    1 force float; 2 concepts string*; 3 uuids string*
Targets
    1 target_vectors string*; 2 combination enum; 4 weights_for_targets WeightsForTarget*
WeightsForTarget
    1 target string; 2 weight float
Selection
    oneof selection
        1 mmr SelectionMMR
SelectionMMR
    1 limit uint32 ?; 2 balance float ?
NearVector
    1 vector float*; 2 certainty double ?; 3 distance double ?; 4 vector_bytes bytes
    5 target_vectors string*; 6 targets Targets; 7 vector_per_target map<string, bytes>
    8 vector_for_targets VectorForTarget*; 9 vectors Vectors*; 10 selection Selection
VectorForTarget
    1 name string; 2 vector_bytes bytes; 3 vectors Vectors*
Vectors
    1 name string; 2 index uint64; 3 vector_bytes bytes; 4 type enum
SearchOperatorOptions
    1 operator enum; 2 minimum_or_tokens_match int32 ?
BM25
    1 query string; 2 properties string*; 3 search_operator SearchOperatorOptions
NearObject
    1 id string; 2 certainty double ?; 3 distance double ?; 4 target_vectors string*
    5 targets Targets; 6 selection Selection
NearImageSearch
    1 image string; 2 certainty double ?; 3 distance double ?; 4 target_vectors string*
    5 targets Targets; 6 selection Selection
NearAudioSearch
    1 audio string; 2 certainty double ?; 3 distance double ?; 4 target_vectors string*
    5 targets Targets; 6 selection Selection
NearVideoSearch
    1 video string; 2 certainty double ?; 3 distance double ?; 4 target_vectors string*
    5 targets Targets; 6 selection Selection
NearDepthSearch
    1 depth string; 2 certainty double ?; 3 distance double ?; 4 target_vectors string*
    5 targets Targets; 6 selection Selection
NearThermalSearch
    1 thermal string; 2 certainty double ?; 3 distance double ?; 4 target_vectors string*
    5 targets Targets; 6 selection Selection
NearIMUSearch
    1 imu string; 2 certainty double ?; 3 distance double ?; 4 target_vectors string*
    5 targets Targets; 6 selection Selection
Rerank
    1 property string; 2 query string ?
Boost
    1 conditions BoostCondition*; 2 weight float ?; 3 depth uint32 ?
BoostCondition
    5 weight float ?
    oneof condition
        1 filter Filters; 2 time_decay BoostTimeDecayFunction
        3 property_value BoostPropertyValueFunction; 4 numeric_decay BoostNumericDecayFunction
BoostTimeDecayFunction
    1 property string; 2 origin string; 3 scale string; 4 offset string ?; 5 curve enum ?
    6 decay_value float ?
BoostPropertyValueFunction
    1 property string; 2 modifier enum ?
BoostNumericDecayFunction
    1 property string; 2 origin double; 3 scale double; 4 offset double ?; 5 curve enum ?
    6 decay_value float ?
"""

# The models that write a text about what was found. None of these fields names a collection.
_GENERATIVE = """
GenerativeSearch
    1 single_response_prompt string; 2 grouped_response_task string
    3 grouped_properties string*; 4 single GenerativeSearchSingle
    5 grouped GenerativeSearchGrouped
GenerativeSearchSingle
    1 prompt string; 2 debug bool; 3 queries GenerativeProvider*
GenerativeSearchGrouped
    1 task string; 2 properties TextArray; 3 queries GenerativeProvider*; 4 debug bool
GenerativeProvider
    1 return_metadata bool
    oneof kind
        2 anthropic GenerativeAnthropic; 3 anyscale GenerativeAnyscale; 4 aws GenerativeAWS
        5 cohere GenerativeCohere; 6 dummy GenerativeDummy; 7 mistral GenerativeMistral
        8 ollama GenerativeOllama; 9 openai GenerativeOpenAI; 10 google GenerativeGoogle
        11 databricks GenerativeDatabricks; 12 friendliai GenerativeFriendliAI
        13 nvidia GenerativeNvidia; 14 xai GenerativeXAI; 15 contextualai GenerativeContextualAI
        16 deepseek GenerativeDeepseek; 17 digitalocean GenerativeDigitalOcean
        18 meta GenerativeMeta
GenerativeAnthropic
    1 base_url string ?; 2 max_tokens int64 ?; 3 model string ?; 4 temperature double ?
    5 top_k int64 ?; 6 top_p double ?; 7 stop_sequences TextArray; 8 images TextArray
    9 image_properties TextArray
GenerativeAnyscale
    1 base_url string ?; 2 model string ?; 3 temperature double ?
GenerativeAWS
    3 model string ?; 8 temperature double ?; 9 service string ?; 10 region string ?
    11 endpoint string ?; 12 target_model string ?; 13 target_variant string ?
    14 images TextArray; 15 image_properties TextArray; 16 max_tokens int64 ?
    17 stop_sequences TextArray
GenerativeCohere
    1 base_url string ?; 2 frequency_penalty double ?; 3 max_tokens int64 ?; 4 model string ?
    5 k int64 ?; 6 p double ?; 7 presence_penalty double ?; 8 stop_sequences TextArray
    9 temperature double ?; 10 images TextArray; 11 image_properties TextArray
GenerativeDummy
GenerativeMistral
    1 base_url string ?; 2 max_tokens int64 ?; 3 model string ?; 4 temperature double ?
    5 top_p double ?
GenerativeOllama
    1 api_endpoint string ?; 2 model string ?; 3 temperature double ?; 4 images TextArray
    5 image_properties TextArray
GenerativeOpenAI
    1 frequency_penalty double ?; 2 max_tokens int64 ?; 3 model string ?; 4 n int64 ?
    5 presence_penalty double ?; 6 stop TextArray; 7 temperature double ?; 8 top_p double ?
    9 base_url string ?; 10 api_version string ?; 11 resource_name string ?
    12 deployment_id string ?; 13 is_azure bool ?; 14 images TextArray
    15 image_properties TextArray; 16 reasoning_effort enum ?; 17 verbosity enum ?
GenerativeGoogle
    1 frequency_penalty double ?; 2 max_tokens int64 ?; 3 model string ?
    4 presence_penalty double ?; 5 temperature double ?; 6 top_k int64 ?; 7 top_p double ?
    8 stop_sequences TextArray; 9 api_endpoint string ?; 10 project_id string ?
    11 endpoint_id string ?; 12 region string ?; 13 images TextArray
    14 image_properties TextArray; 15 location string ?
GenerativeDatabricks
    1 endpoint string ?; 2 model string ?; 3 frequency_penalty double ?; 4 log_probs bool ?
    5 top_log_probs int64 ?; 6 max_tokens int64 ?; 7 n int64 ?; 8 presence_penalty double ?
    9 stop TextArray; 10 temperature double ?; 11 top_p double ?
GenerativeFriendliAI
    1 base_url string ?; 2 model string ?; 3 max_tokens int64 ?; 4 temperature double ?
    5 n int64 ?; 6 top_p double ?
GenerativeNvidia
    1 base_url string ?; 2 model string ?; 3 temperature double ?; 4 top_p double ?
    5 max_tokens int64 ?
GenerativeXAI
    1 base_url string ?; 2 model string ?; 3 temperature double ?; 4 top_p double ?
    5 max_tokens int64 ?; 6 images TextArray; 7 image_properties TextArray
GenerativeContextualAI
    1 model string ?; 2 temperature double ?; 3 top_p double ?; 4 max_new_tokens int64 ?
    5 system_prompt string ?; 6 avoid_commentary bool ?; 7 knowledge TextArray
GenerativeDeepseek
    1 base_url string ?; 2 model string ?; 3 temperature double ?; 4 max_tokens int64 ?
    5 frequency_penalty double ?; 6 presence_penalty double ?; 7 top_p double ?
    8 stop TextArray
GenerativeDigitalOcean
    1 base_url string ?; 2 model string ?; 3 temperature double ?; 4 top_p double ?
    5 max_tokens int64 ?; 6 frequency_penalty double ?; 7 presence_penalty double ?
    8 stop TextArray
GenerativeMeta
    1 base_url string ?; 2 model string ?; 3 temperature double ?; 4 top_p double ?
    5 max_tokens int64 ?; 6 frequency_penalty double ?; 7 presence_penalty double ?
    8 reasoning_effort enum ?; 9 images TextArray; 10 image_properties TextArray
"""

_AGGREGATE = """
AggregateRequest
    1 collection string @collection; 10 tenant string @tenant; 20 objects_count bool
    21 aggregations AggregateRequestAggregation*; 30 object_limit uint32 ?
    31 group_by AggregateRequestGroupBy; 32 limit uint32 ?; 40 filters Filters
    oneof search
        41 hybrid Hybrid; 42 near_vector NearVector; 43 near_object NearObject
        44 near_text NearTextSearch; 45 near_image NearImageSearch
        46 near_audio NearAudioSearch; 47 near_video NearVideoSearch
        48 near_depth NearDepthSearch; 49 near_thermal NearThermalSearch
        50 near_imu NearIMUSearch
AggregateRequestAggregation
    1 property string
    oneof aggregation
        2 int AggregateRequestAggregationInteger; 3 number AggregateRequestAggregationNumber
        4 text AggregateRequestAggregationText; 5 boolean AggregateRequestAggregationBoolean
        6 date AggregateRequestAggregationDate; 7 reference AggregateRequestAggregationReference
AggregateRequestAggregationInteger
    1 count bool; 2 type bool; 3 sum bool; 4 mean bool; 5 mode bool; 6 median bool
    7 maximum bool; 8 minimum bool
AggregateRequestAggregationNumber
    1 count bool; 2 type bool; 3 sum bool; 4 mean bool; 5 mode bool; 6 median bool
    7 maximum bool; 8 minimum bool
AggregateRequestAggregationText
    1 count bool; 2 type bool; 3 top_occurences bool; 4 top_occurences_limit uint32 ?
AggregateRequestAggregationBoolean
    1 count bool; 2 type bool; 3 total_true bool; 4 total_false bool; 5 percentage_true bool
    6 percentage_false bool
AggregateRequestAggregationDate
    1 count bool; 2 type bool; 3 median bool; 4 mode bool; 5 maximum bool; 6 minimum bool
AggregateRequestAggregationReference
    1 type bool; 2 pointing_to bool
AggregateRequestGroupBy
    1 collection string @collection; 2 property string
"""

_TENANTS = """
TenantsGetRequest
    1 collection string @collection
    oneof params
        2 names TenantNames
TenantNames
    1 values string* @tenant
TenantsGetReply
    1 took float; 2 tenants Tenant*
Tenant
    1 name string; 2 activity_status enum
"""

_WRITES = """
BatchObjectsRequest
    1 objects BatchObject*; 2 consistency_level enum ?
BatchObject
    1 uuid string; 2 vector float*; 3 properties BatchObjectProperties
    4 collection string @collection; 5 tenant string @tenant; 6 vector_bytes bytes
    23 vectors Vectors*
BatchObjectProperties
    1 non_ref_properties raw; 2 single_target_ref_props BatchObjectSingleTargetRefProps*
    3 multi_target_ref_props BatchObjectMultiTargetRefProps*; 4 number_array_properties raw*
    5 int_array_properties raw*; 6 text_array_properties raw*; 7 boolean_array_properties raw*
    8 object_properties raw*; 9 object_array_properties raw*; 10 empty_list_props string*
BatchObjectSingleTargetRefProps
    1 uuids string*; 2 prop_name string
BatchObjectMultiTargetRefProps
    1 uuids string*; 2 prop_name string; 3 target_collection string @collection
BatchReferencesRequest
    1 references BatchReference*; 2 consistency_level enum ?
BatchReference
    1 name string; 2 from_collection string @collection; 3 from_uuid string
    4 to_collection string ? @collection; 5 to_uuid string; 6 tenant string @tenant
BatchStreamRequest
    oneof message
        1 start BatchStreamRequestStart; 2 data BatchStreamRequestData
        3 stop BatchStreamRequestStop
BatchStreamRequestStart
    1 consistency_level enum ?
BatchStreamRequestStop
BatchStreamRequestData
    1 objects BatchStreamRequestDataObjects; 2 references BatchStreamRequestDataReferences
BatchStreamRequestDataObjects
    1 values BatchObject*
BatchStreamRequestDataReferences
    1 values BatchReference*
BatchDeleteRequest
    1 collection string @collection; 2 filters Filters; 3 verbose bool; 4 dry_run bool
    5 consistency_level enum ?; 6 tenant string ? @tenant
"""

# Of two members, one holds an object's properties: `non_ref_properties`, with the fields 5 to 10
# and with `string_value`, is what Weaviate before 1.27 fills for a client that doesn't set
# `uses_123_api` and `uses_125_api`. Later definitions reserve these numbers.
_SEARCH_REPLY = """
SearchReply
    1 took float; 2 results SearchResult*; 3 generative_grouped_result string ?
    4 group_by_results raw*; 5 generative_grouped_results raw; 6 query_profile raw
SearchResult
    1 properties PropertiesResult; 2 metadata raw; 3 generative raw
PropertiesResult
    1 non_ref_properties Struct; 2 ref_props raw*; 3 target_collection string; 4 metadata raw
    5 number_array_properties raw*; 6 int_array_properties raw*; 7 text_array_properties raw*
    8 boolean_array_properties raw*; 9 object_properties raw*; 10 object_array_properties raw*
    11 non_ref_props Properties; 12 ref_props_requested bool
Properties
    1 fields map<string, Value>
Value
    oneof kind
        1 number_value double; 2 string_value string; 3 bool_value bool; 4 object_value raw
        5 list_value raw; 6 date_value string; 7 uuid_value string; 8 int_value int64
        9 geo_value raw; 10 blob_value string; 11 phone_value raw; 12 null_value enum
        13 text_value string
Struct
    1 fields map<string, StructValue>
StructValue
    oneof kind
        1 null_value enum; 2 number_value double; 3 string_value string; 4 bool_value bool
        5 struct_value raw; 6 list_value raw
"""

# `grpc.health.v1`, which clients call before anything else.
_HEALTH = """
HealthCheckRequest
    1 service string
"""

SCHEMA = Schema(f"{_SEARCH}{_GENERATIVE}{_AGGREGATE}{_TENANTS}{_WRITES}{_SEARCH_REPLY}{_HEALTH}")
