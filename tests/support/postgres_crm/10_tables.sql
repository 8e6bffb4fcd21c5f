-- What an agent of support may read (`public`), may perhaps read (`hr`), and must never read
-- (`secret`). The names and values of `secret.payroll` occur nowhere else, so that a byte of it is
-- recognised wherever it turns up.
CREATE SCHEMA hr;
CREATE SCHEMA secret;
CREATE SCHEMA api;
CREATE SCHEMA cast_aside;

CREATE TABLE public.tickets (
    id int PRIMARY KEY, title text NOT NULL, body text, status text DEFAULT 'open',
    priority int, opened date, tags text[], details jsonb
);
INSERT INTO public.tickets
    SELECT n, 'Ticket ' || n, 'The printer on floor ' || n % 7 || ' is out of paper.',
        CASE WHEN n % 3 = 0 THEN 'closed' ELSE 'open' END, n % 5, date '2026-01-01' + n,
        ARRAY['printer', 'floor' || n % 7], jsonb_build_object('floor', n % 7)
    FROM generate_series(1, 200) AS n;

CREATE TABLE public.articles (id int PRIMARY KEY, title text, body text, embedding float8[]);
INSERT INTO public.articles
    SELECT n, 'Article ' || n, 'How to refill paper, part ' || n, ARRAY[n % 3, n % 5, n % 7]
    FROM generate_series(1, 50) AS n;

CREATE TABLE public.numbers AS SELECT n, 'row ' || n AS label FROM generate_series(1, 10000) AS n;
CREATE TABLE public.notes (id serial PRIMARY KEY, ticket int, note text);

CREATE TABLE hr.employees (id int PRIMARY KEY, name text, email text, boss int);
INSERT INTO hr.employees
    SELECT n, 'Employee ' || n, 'employee' || n || '@example.com', nullif(n / 4, 0)
    FROM generate_series(1, 40) AS n;

CREATE TABLE secret.payroll (
    id int PRIMARY KEY, qpayee text NOT NULL, qsalary int NOT NULL CHECK (qsalary > 0),
    qsince date NOT NULL, qterms jsonb NOT NULL, qseal bytea NOT NULL, qwords tsvector
);
INSERT INTO secret.payroll
    SELECT n, 'SECRET_7f3a_payee_' || n, 734100000 + n, date '1873-04-05',
        jsonb_build_object('clause', 'SECRET_7f3a_terms_' || n), 'SECRET_7f3a_seal'::bytea,
        array_to_tsvector(ARRAY['SECRET_7f3a_word'])
    FROM generate_series(1, 1373) AS n;
CREATE INDEX payroll_salary ON secret.payroll (qsalary);
CREATE INDEX payroll_payee ON secret.payroll (lower(qpayee));
CREATE STATISTICS secret.payroll_both (mcv) ON qsince, qterms FROM secret.payroll;
CREATE SEQUENCE secret.payroll_run START 734100777;
SELECT nextval('secret.payroll_run');
CREATE TYPE secret.mood AS ENUM ('SECRET_7f3a_mood');
COMMENT ON TABLE secret.payroll IS 'SECRET_7f3a_comment';

-- The namesake on another search path, and a table of keys that refer to the payroll.
CREATE TABLE cast_aside.tickets AS SELECT id, qpayee AS title FROM secret.payroll;
CREATE TABLE public.payslips (
    payroll int REFERENCES secret.payroll ON DELETE CASCADE, month int
);
INSERT INTO public.payslips SELECT n, n % 12 FROM generate_series(1, 20) AS n;
