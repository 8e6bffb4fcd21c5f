-- Tables whose own expressions read the payroll: triggers, defaults, policies, indexes.
CREATE TABLE public.triggered (id int, told text);
CREATE FUNCTION api.trigger_peeks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.told := (SELECT qpayee FROM secret.payroll WHERE id = 1);
        RAISE NOTICE 'triggered %', NEW.told;
        RETURN NEW;
    END $$;
CREATE TRIGGER peeks BEFORE INSERT OR UPDATE ON public.triggered
    FOR EACH ROW EXECUTE FUNCTION api.trigger_peeks();
INSERT INTO public.triggered VALUES (0, NULL);
UPDATE public.triggered SET told = NULL;
CREATE TABLE public.defaulted (id int, told text DEFAULT api.peek_definer());
CREATE TABLE public.checked (pay int CHECK (api.known_salary(pay)));
CREATE TABLE public.generated (
    id int, told text GENERATED ALWAYS AS (api.peek_plpgsql_immutable_safe()) STORED
);
INSERT INTO public.generated VALUES (1);

CREATE TABLE public.guarded (id int, title text);
INSERT INTO public.guarded VALUES (1, 'one'), (2, 'two');
CREATE FUNCTION api.policy_peeks(int) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        RAISE NOTICE 'policy %', (SELECT qpayee FROM secret.payroll WHERE id = $1);
        RETURN true;
    END $$;
ALTER TABLE public.guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY guarded_read ON public.guarded USING (api.policy_peeks(id));
CREATE TABLE public.tenants (id int, tenant text, told text);
INSERT INTO public.tenants VALUES (1, 'ours', 'a word'), (2, 'theirs', 'SECRET_7f3a_tenant');
ALTER TABLE public.tenants ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON public.tenants
    USING (tenant = coalesce(nullif(current_setting('app.tenant', true), ''), 'ours'));
CREATE TABLE public.by_membership (id int, title text);
INSERT INTO public.by_membership SELECT n, 'row ' || n FROM generate_series(1, 9) AS n;
ALTER TABLE public.by_membership ENABLE ROW LEVEL SECURITY;
CREATE POLICY in_payroll ON public.by_membership
    USING (EXISTS (SELECT FROM secret.payroll p WHERE p.id = by_membership.id AND p.qsalary = 734100007));

-- An index expression and a partial index run code when they are used and when they are made.
CREATE TABLE public.indexed (id int, title text);
INSERT INTO public.indexed SELECT n, 'title ' || n FROM generate_series(1, 2000) AS n;
CREATE FUNCTION api.index_peeks(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        RAISE NOTICE 'indexed %', (SELECT qpayee FROM secret.payroll WHERE id = 1);
        RETURN $1;
    END $$;
SET client_min_messages = error;
CREATE INDEX ON public.indexed (api.index_peeks(id));
RESET client_min_messages;
CREATE FUNCTION api.support_peeks(int) RETURNS SETOF int LANGUAGE plpgsql ROWS 1 AS $$
    BEGIN RETURN QUERY SELECT qsalary FROM secret.payroll WHERE id <= $1; END $$;

-- Large objects, and the rights that a careless administrator gives.
SELECT lo_from_bytea(73410, 'SECRET_7f3a_large_object');
GRANT USAGE ON SCHEMA hr, secret, api, cast_aside TO agent_support;
GRANT ALL ON ALL TABLES IN SCHEMA public, hr, secret, api, cast_aside TO agent_support;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public, secret TO agent_support;
GRANT ALL ON SCHEMA public TO agent_support;
GRANT ALL ON LARGE OBJECT 73410 TO agent_support;
CREATE ROLE payroll_clerk;
CREATE ROLE payroll_owner;
GRANT payroll_clerk, pg_monitor, pg_read_all_stats, pg_read_server_files, pg_write_server_files,
    pg_execute_server_program, pg_signal_backend TO agent_support;
GRANT USAGE ON SCHEMA secret TO payroll_clerk;
GRANT ALL ON ALL TABLES IN SCHEMA secret TO payroll_clerk;
GRANT EXECUTE ON FUNCTION pg_read_file(text), pg_read_file(text, bigint, bigint),
    pg_read_binary_file(text), pg_read_binary_file(text, bigint, bigint), pg_ls_dir(text),
    pg_stat_file(text), lo_import(text), lo_export(oid, text) TO agent_support;
GRANT SELECT ON pg_statistic, pg_statistic_ext_data, pg_authid, pg_largeobject, pg_user_mapping,
    pg_subscription TO agent_support;
