"""The server's own functions, operators and types, sorted by hand: PostgreSQL 15 to 18.

A test compares the tables with `pg_proc`, `pg_operator` and `pg_type` of real servers, so that each
function is either open or closed for a reason.
"""

from __future__ import annotations

from sidecar.protocols.postgres.names import words

OPEN_FUNCTIONS = words("""
abbrev abs acldefault aclexplode acos acosd acosh age any_value area array_agg array_append
array_cat array_dims array_fill array_length array_lower array_ndims array_position
array_positions array_prepend array_remove array_replace array_reverse array_sample array_shuffle
array_sort array_to_json array_to_string array_to_tsvector array_upper arraycontained
arraycontains arrayoverlap ascii asin asind asinh atan atan2 atan2d atand atanh avg bit bit_and
bit_count bit_length bit_or bit_xor bool bool_and bool_or bound_box box bpchar broadcast btrim
bytea cardinality casefold cash_words cbrt ceil ceiling center char char_length character_length
chr cidr circle clock_timestamp col_description concat concat_ws convert convert_from convert_to
corr cos cosd cosh cot cotd count covar_pop covar_samp crc32 crc32c cume_dist current_database
current_query current_schema current_schemas current_user date date_add date_bin date_part
date_subtract date_trunc datemultirange daterange decode degrees dense_rank diagonal diameter div
encode enum_first enum_last enum_range erf erfc every exp extract factorial family first_value
float4 float8 floor format format_type gamma gcd gen_random_uuid generate_series
generate_subscripts get_bit get_byte get_current_ts_config getdatabaseencoding getpgusername
has_any_column_privilege has_column_privilege has_database_privilege
has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
has_parameter_privilege has_schema_privilege has_sequence_privilege has_server_privilege
has_table_privilege has_tablespace_privilege has_type_privilege hashint4 hashint8 hashtext
hashtextextended height host hostmask icu_unicode_version inet_client_addr inet_client_port
inet_merge inet_same_family inet_server_addr inet_server_port initcap int2 int4 int4multirange
int4range int8 int8multirange int8range interval is_normalized isclosed isempty isfinite
ishorizontal isopen isparallel isperp isvertical json_agg json_agg_strict json_array_element
json_array_element_text json_array_elements json_array_elements_text json_array_length
json_build_array json_build_object json_each json_each_text json_extract_path
json_extract_path_text json_object json_object_agg json_object_agg_strict json_object_agg_unique
json_object_agg_unique_strict json_object_field json_object_field_text json_object_keys
json_populate_record json_populate_recordset json_strip_nulls json_to_record json_to_recordset
json_to_tsvector json_typeof jsonb_agg jsonb_agg_strict jsonb_array_element
jsonb_array_element_text jsonb_array_elements jsonb_array_elements_text jsonb_array_length
jsonb_build_array jsonb_build_object jsonb_concat jsonb_contained jsonb_contains jsonb_delete
jsonb_delete_path jsonb_each jsonb_each_text jsonb_exists jsonb_exists_all jsonb_exists_any
jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg
jsonb_object_agg_strict jsonb_object_agg_unique jsonb_object_agg_unique_strict jsonb_object_field
jsonb_object_field_text jsonb_object_keys jsonb_path_exists jsonb_path_exists_tz jsonb_path_match
jsonb_path_match_tz jsonb_path_query jsonb_path_query_array jsonb_path_query_array_tz
jsonb_path_query_first jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record
jsonb_populate_record_valid jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_set_lax
jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_to_tsvector jsonb_typeof justify_days
justify_hours justify_interval lag last_value lcm lead left length lgamma like like_escape line ln
log log10 lower lower_inc lower_inf lpad lseg ltrim macaddr macaddr8 macaddr8_set7bit make_date
make_interval make_time make_timestamp make_timestamptz makeaclitem masklen max md5 min min_scale
mod mode money multirange name nameconcatoid netmask network normalize notlike now npoints
nth_value ntile num_nonnulls num_nulls numeric nummultirange numnode numrange obj_description
octet_length oid oidvectortypes overlaps overlay parse_ident path percent_rank percentile_cont
percentile_disc pg_advisory_unlock_all pg_available_extension_versions pg_available_extensions
pg_backend_pid pg_basetype pg_char_to_encoding pg_client_encoding pg_collation_actual_version
pg_collation_for pg_collation_is_visible pg_column_compression pg_column_is_updatable
pg_column_size pg_column_toast_chunk_id pg_conf_load_time pg_conversion_is_visible
pg_database_collation_actual_version pg_describe_object pg_encoding_max_length pg_encoding_to_char
pg_function_is_visible pg_get_acl pg_get_catalog_foreign_keys pg_get_constraintdef pg_get_expr
pg_get_function_arg_default pg_get_function_arguments pg_get_function_identity_arguments
pg_get_function_result pg_get_function_sqlbody pg_get_functiondef pg_get_indexdef pg_get_keywords
pg_get_object_address pg_get_partition_constraintdef pg_get_partkeydef
pg_get_replica_identity_index pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef
pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions pg_get_triggerdef
pg_get_userbyid pg_get_viewdef pg_has_role pg_identify_object pg_identify_object_as_address
pg_index_column_has_property pg_index_has_property pg_indexam_has_property pg_is_in_recovery
pg_is_other_temp_schema pg_jit_available pg_listening_channels pg_lsn pg_my_temp_schema
pg_opclass_is_visible pg_operator_is_visible pg_opfamily_is_visible pg_options_to_table
pg_partition_ancestors pg_partition_root pg_partition_tree pg_postmaster_start_time
pg_relation_is_publishable pg_relation_is_updatable pg_sequence_parameters pg_settings_get_flags
pg_size_bytes pg_size_pretty pg_statistics_obj_is_visible pg_table_is_visible pg_timezone_abbrevs
pg_timezone_abbrevs_abbrevs pg_timezone_abbrevs_zone pg_timezone_names pg_trigger_depth
pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible
pg_type_is_visible pg_typeof pg_wal_lsn_diff phraseto_tsquery pi plainto_tsquery point polygon
position pow power querytree quote_ident quote_literal quote_nullable radians radius random
random_normal range_agg range_intersect_agg range_merge rank regclass regexp_count regexp_instr
regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
regr_syy repeat replace reverse right round row_number row_security_active row_to_json rpad rtrim
scale session_user set_bit set_byte set_masklen setseed setweight sha224 sha256 sha384 sha512
shobj_description sign similar_escape similar_to_escape sin sind sinh slope split_part sqrt
starts_with statement_timestamp stddev stddev_pop stddev_samp string_agg string_to_array
string_to_table strip strpos substr substring sum system_user tan tand tanh text textcat time
timeofday timestamp timestamptz timetz timezone to_ascii to_bin to_char to_date to_hex to_json
to_jsonb to_number to_oct to_regclass to_regcollation to_regnamespace to_regoper to_regoperator
to_regproc to_regprocedure to_regrole to_regtype to_regtypemod to_timestamp to_tsquery to_tsvector
transaction_timestamp translate trim_array trim_scale trunc ts_debug ts_delete ts_filter
ts_headline ts_lexize ts_match_vq ts_parse ts_rank ts_rank_cd ts_rewrite ts_token_type
tsmultirange tsquery_phrase tsrange tstzmultirange tstzrange tsvector_to_array unicode_assigned
unicode_version unistr unnest upper upper_inc upper_inf uuid_extract_timestamp
uuid_extract_version uuidv4 uuidv7 var_pop var_samp varbit varchar variance version
websearch_to_tsquery width width_bucket xid xml xml_is_well_formed xml_is_well_formed_content
xml_is_well_formed_document xmlagg xmlcomment xmlconcat2 xmlexists xmltext xmlvalidate xpath
xpath_exists
""")
"""Functions of `pg_catalog` that depend on their arguments, on the clock or on metadata alone."""

# The first pattern that covers a name says why it is closed. A `*` stands for anything.
CLOSED_FUNCTIONS: dict[str, str] = {
    "reads the server's files or its configuration": """
        pg_read_* pg_ls_* pg_stat_file pg_current_logfile pg_config pg_hba_file_rules
        pg_ident_file_mappings pg_show_all_file_settings pg_rotate_logfile*
        pg_relation_filenode pg_relation_filepath pg_filenode_relation
        pg_tablespace_location pg_tablespace_databases pg_extension_update_paths
        pg_control_* pg_get_loaded_modules""",
    "reads or writes large objects": "lo_* loread lowrite be_lo_* has_largeobject_privilege",
    "runs a query or reads a relation that the statement doesn't name": """
        *_to_xml *_to_xml_and_xmlschema *_to_xmlschema ts_stat currtid2
        satisfies_hash_partition pg_get_publication_tables pg_mcv_list_items""",
    "waits": "pg_sleep*",
    "sees or affects other sessions": """
        pg_advisory_* pg_try_advisory_* pg_blocking_pids pg_safe_snapshot_blocking_pids
        pg_lock_status pg_isolation_test* pg_prepared_xact pg_cursor pg_prepared_statement
        pg_notify pg_notification_queue_usage""",
    "tells or sets where a sequence stands, without a record": """
        currval lastval setval pg_sequence_last_value pg_get_sequence_data""",
    "tells the size of a relation without reading it": """
        pg_relation_size pg_table_size pg_indexes_size pg_total_relation_size
        pg_database_size pg_tablespace_size""",
    "tells or changes the server's statistics": """
        pg_stat_* pg_restore_*_stats pg_clear_*_stats pg_indexam_progress*""",
    "turns an error into a value": "pg_input_*",
    "tells of other transactions": """
        pg_export_snapshot pg_current_snapshot txid_* pg_snapshot_* pg_visible_in_snapshot
        pg_xact_* pg_current_xact_id* mxid_age pg_last_committed_xact
        pg_get_multixact_members""",
    "is for replication and backups": """
        pg_replication_* *replication_slot* pg_logical_* pg_show_replication_origin_status
        pg_available_wal_summaries pg_wal_summary_contents pg_get_wal_* pg_current_wal_*
        pg_last_wal_* pg_last_xact_* pg_walfile_* pg_split_walfile_name
        pg_is_wal_replay_paused pg_wal_replay_* pg_promote pg_switch_wal pg_backup_*
        pg_create_restore_point""",
    "is for administrators": """
        pg_terminate_* pg_cancel_* pg_reload_conf pg_log_* pg_import_* pg_stop_making_*
        pg_nextoid binary_upgrade_* brin_* gin_clean_pending_list pg_extension_config_dump
        pg_event_trigger_* pg_show_all_settings pg_get_backend_memory_contexts pg_get_shmem*
        pg_get_aios pg_get_wait_events pg_numa_available postgresql_fdw_validator amvalidate""",
    "is a support function of an operator or a type": """
        *_canonical *_subdiff int4inc int8_sum numeric_inc enum_send textlen
        numeric_div_trunc numeric_exp numeric_ln numeric_log numeric_sqrt dexp dlog1 dlog10
        dround dtrunc pclose popen""",
}

# `information_schema` has functions too, which drivers call by their whole names.
OPEN_IN_INFORMATION_SCHEMA = words("""
_pg_char_max_length _pg_char_octet_length _pg_datetime_precision _pg_expandarray _pg_index_position
_pg_interval_type _pg_numeric_precision _pg_numeric_precision_radix _pg_numeric_scale
_pg_truetypid _pg_truetypmod
""")

OPERATORS = words("""
!! !~ !~* !~~ !~~* # ## #- #> #>> % & && &< &<| &> * *< *<= *<> *= *> *>= + - -> ->> -|- / < <->
<< <<= <<| <= <> <@ <^ = > >= >> >>= >^ ? ?# ?& ?- ?-| ?| ?|| @ @-@ @> @? @@ @@@ ^ ^@ | |&> |/ |>>
|| ||/ ~ ~* ~<=~ ~<~ ~= ~>=~ ~>~ ~~ ~~*
""")

TYPES = words("""
aclitem bit bool box bpchar bytea char cid cidr circle date datemultirange daterange float4 float8
inet int2 int2vector int4 int4multirange int4range int8 int8multirange int8range interval json
jsonb jsonpath line lseg macaddr macaddr8 money name numeric nummultirange numrange oid oidvector
path pg_lsn point polygon record refcursor regclass regcollation regconfig regdictionary
regnamespace regoper regoperator regproc regprocedure regrole regtype text tid time timestamp
timestamptz timetz tsmultirange tsquery tsrange tstzmultirange tstzrange tsvector uuid varbit
varchar xid xid8 xml
""")
"""The server's own types that a value can have. None of them runs code that isn't the server's."""

SAMPLE_METHODS = frozenset({"bernoulli", "system"})
