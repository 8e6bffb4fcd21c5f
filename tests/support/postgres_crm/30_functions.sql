-- Functions that read the payroll, of every language, volatility and parallel safety. Their names
-- are `api.peek_LANGUAGE_VOLATILITY_PARALLEL()`.
DO $do$
DECLARE
    volatility text;
    parallel text;
BEGIN
    FOREACH volatility IN ARRAY ARRAY['volatile', 'stable', 'immutable'] LOOP
        FOREACH parallel IN ARRAY ARRAY['unsafe', 'restricted', 'safe'] LOOP
            EXECUTE format($f$
                CREATE FUNCTION api.peek_sql_%1$s_%2$s() RETURNS text LANGUAGE sql %1$s PARALLEL %2$s
                AS 'SELECT qpayee FROM secret.payroll WHERE id = 1'$f$, volatility, parallel);
            EXECUTE format($f$
                CREATE FUNCTION api.peek_plpgsql_%1$s_%2$s() RETURNS text LANGUAGE plpgsql
                %1$s PARALLEL %2$s
                AS 'BEGIN RETURN (SELECT qpayee FROM secret.payroll WHERE id = 1); END'$f$,
                volatility, parallel);
            -- It catches its own error: the locks of the subtransaction are gone when it returns.
            EXECUTE format($f$
                CREATE FUNCTION api.peek_swallow_%1$s_%2$s() RETURNS text LANGUAGE plpgsql
                %1$s PARALLEL %2$s
                AS $body$
                    DECLARE v text;
                    BEGIN
                        BEGIN
                            SELECT qpayee INTO v FROM secret.payroll WHERE id = 1;
                            RAISE division_by_zero;
                        EXCEPTION WHEN division_by_zero THEN NULL;
                        END;
                        RETURN v;
                    END
                $body$ $f$, volatility, parallel);
        END LOOP;
    END LOOP;
END
$do$;

CREATE FUNCTION api.peek_definer() RETURNS text LANGUAGE sql SECURITY DEFINER
    AS 'SELECT qpayee FROM secret.payroll WHERE id = 1';
CREATE FUNCTION api.peek_atomic() RETURNS text LANGUAGE sql
    BEGIN ATOMIC SELECT qpayee FROM secret.payroll WHERE id = 1; END;
CREATE FUNCTION api.peek_inlined(int) RETURNS TABLE (who text) LANGUAGE sql STABLE
    AS 'SELECT qpayee FROM secret.payroll WHERE id <= $1';
CREATE FUNCTION api.peek_set() RETURNS SETOF secret.payroll LANGUAGE plpgsql
    AS 'BEGIN RETURN QUERY SELECT * FROM secret.payroll; END';
CREATE FUNCTION api.peek_out(OUT who text, OUT pay int) LANGUAGE sql
    AS 'SELECT qpayee, qsalary FROM secret.payroll WHERE id = 1';
CREATE FUNCTION api.peek_default(who text DEFAULT api.peek_definer()) RETURNS text LANGUAGE sql
    AS 'SELECT who';
CREATE FUNCTION api.peek_variadic(VARIADIC ids int[]) RETURNS SETOF text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = ANY (ids)';
CREATE FUNCTION api.peek_dynamic(name text) RETURNS SETOF text LANGUAGE plpgsql
    AS 'BEGIN RETURN QUERY EXECUTE format(''SELECT t::text FROM %s t'', name); END';
CREATE FUNCTION api.peek_path() RETURNS text LANGUAGE sql SET search_path = secret
    AS 'SELECT qpayee FROM payroll WHERE id = 1';
CREATE FUNCTION api.peek_cursor() RETURNS refcursor LANGUAGE plpgsql AS $$
    DECLARE c refcursor := 'pay_cursor';
    BEGIN OPEN c FOR SELECT qpayee FROM secret.payroll; RETURN c; END $$;
CREATE FUNCTION api.peek_notice() RETURNS int LANGUAGE plpgsql AS $$
    BEGIN RAISE NOTICE 'it is %', (SELECT qpayee FROM secret.payroll WHERE id = 1); RETURN 1; END $$;
CREATE FUNCTION api.peek_error() RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'refused' USING
            DETAIL = (SELECT qpayee FROM secret.payroll WHERE id = 1),
            HINT = (SELECT qpayee FROM secret.payroll WHERE id = 2);
    END $$;
CREATE FUNCTION api.peek_context(who text) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('SELECT 1/0 /* %s */', (SELECT qpayee FROM secret.payroll WHERE id = 1));
        RETURN 1;
    END $$;
CREATE FUNCTION api.peek_setting() RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM set_config('application_name', (SELECT qpayee FROM secret.payroll WHERE id = 1), false);
        RETURN 1;
    END $$;
CREATE FUNCTION api.peek_bit(guess int) RETURNS boolean LANGUAGE sql STABLE
    AS 'SELECT EXISTS (SELECT FROM secret.payroll WHERE qsalary = guess)';
CREATE FUNCTION api.peek_bit_error(guess int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN RETURN 1 / (1 - (SELECT count(*) FROM secret.payroll WHERE qsalary = guess)::int); END $$;
CREATE FUNCTION api.peek_int(int) RETURNS int LANGUAGE sql
    AS 'SELECT qsalary FROM secret.payroll WHERE id = $1';
CREATE FUNCTION api.peek_row() RETURNS secret.payroll LANGUAGE sql
    AS 'SELECT p FROM secret.payroll p WHERE id = 1';
CREATE FUNCTION api.peek_json() RETURNS jsonb LANGUAGE sql
    AS 'SELECT jsonb_agg(to_jsonb(p)) FROM secret.payroll p WHERE id < 4';
CREATE FUNCTION api.peek_nested() RETURNS text LANGUAGE sql
    AS 'SELECT upper(api.peek_plpgsql_stable_safe())';
CREATE FUNCTION api.peek_temp() RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        CREATE TEMP TABLE taken AS SELECT qpayee AS what FROM secret.payroll;
        RETURN 1;
    END $$;
CREATE FUNCTION api.peek_filter(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
    BEGIN RAISE NOTICE 'seen %', $1; RETURN true; END $$;
CREATE FUNCTION api.peek_any(anyelement) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = 1';
CREATE PROCEDURE api.peek_procedure(INOUT who text) LANGUAGE plpgsql
    AS 'BEGIN who := (SELECT qpayee FROM secret.payroll WHERE id = 1); END';
CREATE PROCEDURE api.peek_committing(INOUT who text) LANGUAGE plpgsql AS $$
    BEGIN who := (SELECT qpayee FROM secret.payroll WHERE id = 1); COMMIT; END $$;
CREATE FUNCTION api.search_articles(word text) RETURNS SETOF public.articles LANGUAGE sql STABLE
    AS $$ SELECT * FROM public.articles WHERE body LIKE '%' || word || '%' $$;

-- Namesakes of what is built in: an integer finds the first, a search path the others.
CREATE FUNCTION public.upper(int) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = $1';
CREATE FUNCTION api.lower(text) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = 1';
CREATE FUNCTION api.now() RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = 1';
CREATE VIEW api.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false;
CREATE VIEW api.pg_class AS SELECT id AS oid, qpayee AS relname FROM secret.payroll;
CREATE FUNCTION api.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 0';
CREATE FUNCTION api.oid_equals(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR api.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = api.oid_equals);
CREATE VIEW api.tickets AS SELECT id, qpayee AS title FROM secret.payroll;
