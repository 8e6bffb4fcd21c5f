"""What a real server has, for comparison with the tables by which texts are read."""

FUNCTIONS = """
    WITH support AS (
        SELECT unnest(ARRAY[oprcode, oprrest, oprjoin])::oid AS oid FROM pg_operator
        UNION SELECT amproc FROM pg_amproc
        UNION SELECT unnest(ARRAY[aggtransfn, aggfinalfn, aggcombinefn, aggserialfn, aggdeserialfn,
            aggmtransfn, aggminvtransfn, aggmfinalfn]) FROM pg_aggregate
        UNION SELECT unnest(ARRAY[typinput, typoutput, typreceive, typsend, typmodin, typmodout,
            typanalyze, typsubscript]) FROM pg_type
        UNION SELECT unnest(ARRAY[prosupport::oid]) FROM pg_proc
        UNION SELECT conproc FROM pg_conversion
        UNION SELECT amhandler FROM pg_am
        UNION SELECT unnest(ARRAY[lanplcallfoid, laninline, lanvalidator]) FROM pg_language
    )
    SELECT DISTINCT proname FROM pg_proc
    WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind IN ('f', 'a', 'w')
        AND oid NOT IN (SELECT oid FROM support)
        AND prorettype NOT IN ('internal'::regtype, 'cstring'::regtype, 'trigger'::regtype,
            'event_trigger'::regtype, 'language_handler'::regtype, 'index_am_handler'::regtype,
            'table_am_handler'::regtype, 'tsm_handler'::regtype, 'fdw_handler'::regtype)
        AND NOT 'internal'::regtype = ANY (proargtypes::oid[])
        AND NOT 'cstring'::regtype = ANY (proargtypes::oid[])
"""
"""The names of the functions that a query can call and that are not behind operators and types."""

EVERY_FUNCTION = """
    SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
"""

OPERATORS = """
    SELECT DISTINCT oprname FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
"""

TYPES = """
    SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typrelid = 0
"""

VIEWS = """
    SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace n
        ON n.oid = relnamespace
    WHERE relkind = 'v' AND nspname IN ('pg_catalog', 'information_schema')
"""

LOCKED = """
    SELECT format('%I.%I', nspname, relname) FROM pg_locks JOIN pg_class c ON c.oid = relation
        JOIN pg_namespace n ON n.oid = relnamespace
    WHERE pid = pg_backend_pid() AND relkind IN ('r', 'v')
"""
