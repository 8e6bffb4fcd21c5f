-- Code that runs without a call in the text: operators, casts, domains, aggregates, types.
CREATE FUNCTION api.int_peeks(int, int) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = $1';
CREATE OPERATOR public.<~> (LEFTARG = int, RIGHTARG = int, FUNCTION = api.int_peeks);
CREATE FUNCTION api.prefix_peeks(int) RETURNS text LANGUAGE plpgsql
    AS 'BEGIN RETURN (SELECT qpayee FROM secret.payroll WHERE id = $1); END';
CREATE OPERATOR public.@#@ (RIGHTARG = int, FUNCTION = api.prefix_peeks);
CREATE FUNCTION api.text_equals(text, text) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        RAISE NOTICE 'told %', (SELECT qpayee FROM secret.payroll WHERE id = 1);
        RETURN true;
    END $$;
CREATE OPERATOR api.= (LEFTARG = text, RIGHTARG = text, FUNCTION = api.text_equals);
CREATE FUNCTION api.int_plus(int, int) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = $1';
CREATE OPERATOR api.+ (LEFTARG = int, RIGHTARG = int, FUNCTION = api.int_plus);

CREATE TYPE api.person AS (id int);
CREATE FUNCTION api.person_text(api.person) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = ($1).id';
CREATE CAST (api.person AS text) WITH FUNCTION api.person_text(api.person) AS IMPLICIT;
CREATE FUNCTION api.who(api.person) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = ($1).id';

-- A domain whose check reads the payroll: it tells by an error, and by a notice.
CREATE FUNCTION api.known_salary(int) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN RETURN NOT EXISTS (SELECT FROM secret.payroll WHERE qsalary = $1); END $$;
CREATE DOMAIN api.not_a_salary AS int CHECK (api.known_salary(VALUE));
CREATE FUNCTION api.loud_check(int) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        RAISE NOTICE 'checked %', (SELECT qpayee FROM secret.payroll WHERE id = $1);
        RETURN true;
    END $$;
CREATE DOMAIN api.loud AS int CHECK (api.loud_check(VALUE));
CREATE TYPE api.boxed AS (inner_value api.loud);

CREATE FUNCTION api.add_payee(text, int) RETURNS text LANGUAGE sql
    AS $$ SELECT concat($1, ' ', (SELECT qpayee FROM secret.payroll WHERE id = $2)) $$;
CREATE AGGREGATE api.payees(int) (SFUNC = api.add_payee, STYPE = text, INITCOND = '');
CREATE FUNCTION api.end_payee(bigint) RETURNS text LANGUAGE sql
    AS 'SELECT qpayee FROM secret.payroll WHERE id = 1';
CREATE AGGREGATE api.counted(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = '0', FINALFUNC = api.end_payee);

-- A range whose difference function reads, and an operator class whose comparison does.
CREATE FUNCTION api.loud_compare(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        RAISE NOTICE 'compared %', (SELECT qpayee FROM secret.payroll WHERE id = 1);
        RETURN $1 - $2;
    END $$;
CREATE OPERATOR CLASS api.loud_int FOR TYPE int USING btree AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 api.loud_compare(int, int);
CREATE TYPE api.loud_range AS RANGE (subtype = int, subtype_opclass = api.loud_int);
