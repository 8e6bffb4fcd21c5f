-- Ways to the payroll that have a name of their own.
CREATE VIEW api.payroll_view AS SELECT * FROM secret.payroll;
CREATE VIEW api.view_of_view AS SELECT id, qpayee AS who FROM api.payroll_view;
CREATE VIEW api.view_of_views AS SELECT id, who FROM api.view_of_view;
CREATE VIEW api.invoker_view WITH (security_invoker) AS SELECT id, qpayee FROM secret.payroll;
CREATE VIEW api.barrier_view WITH (security_barrier) AS SELECT id, qpayee FROM secret.payroll;
CREATE VIEW api.checked_view AS SELECT * FROM secret.payroll WITH CHECK OPTION;
CREATE VIEW api.mixed_view AS
    SELECT t.id, t.title, p.qpayee FROM public.tickets t LEFT JOIN secret.payroll p USING (id);
CREATE VIEW api.union_view AS
    SELECT id, title FROM public.tickets UNION ALL SELECT id, qpayee FROM secret.payroll;
CREATE VIEW api.scalar_view AS
    SELECT id, (SELECT qpayee FROM secret.payroll p WHERE p.id = t.id) AS extra FROM public.tickets t;
CREATE VIEW api.exists_view AS
    SELECT id, title FROM public.tickets t WHERE EXISTS (SELECT FROM secret.payroll p WHERE p.id = t.id);
CREATE RECURSIVE VIEW api.recursive_view (id, who) AS
    SELECT id, qpayee FROM secret.payroll WHERE id = 1
    UNION ALL SELECT p.id, p.qpayee FROM recursive_view r JOIN secret.payroll p ON p.id = r.id + 1
    WHERE p.id < 5;
CREATE VIEW public.tickets_with_pay AS SELECT * FROM api.mixed_view;
CREATE MATERIALIZED VIEW api.payroll_copy AS SELECT * FROM secret.payroll;
CREATE UNIQUE INDEX ON api.payroll_copy (id);
CREATE MATERIALIZED VIEW api.payroll_later AS SELECT * FROM secret.payroll WITH NO DATA;
CREATE VIEW api.view_of_copy AS SELECT qpayee FROM api.payroll_copy;

-- Partitions and inheritance: the parents are open, the children hold what is not.
CREATE TABLE public.events (id int, kind text, told text) PARTITION BY LIST (kind);
CREATE TABLE public.events_open PARTITION OF public.events FOR VALUES IN ('open');
CREATE TABLE secret.events_pay PARTITION OF public.events FOR VALUES IN ('pay');
CREATE TABLE public.events_more PARTITION OF public.events DEFAULT PARTITION BY RANGE (id);
CREATE TABLE secret.events_deep PARTITION OF public.events_more FOR VALUES FROM (0) TO (10000);
INSERT INTO public.events SELECT id, 'pay', qpayee FROM secret.payroll WHERE id < 50;
INSERT INTO public.events SELECT id, 'deep', qpayee FROM secret.payroll WHERE id < 50;
INSERT INTO public.events VALUES (1, 'open', 'a ticket was opened');
CREATE TABLE public.people (id int, name text);
INSERT INTO public.people VALUES (1, 'Ada');
CREATE TABLE secret.paid_people (qbonus text) INHERITS (public.people);
INSERT INTO secret.paid_people SELECT id, qpayee, qpayee FROM secret.payroll WHERE id < 50;

-- Rules: on a table, and on a view.
CREATE TABLE public.inbox (id int, told text);
CREATE RULE copy_pay AS ON INSERT TO public.inbox DO ALSO
    SELECT qpayee FROM secret.payroll WHERE id = 1;
CREATE TABLE public.outbox (id int, told text);
CREATE RULE instead_pay AS ON UPDATE TO public.outbox DO INSTEAD
    SELECT qpayee FROM secret.payroll WHERE id = 2;
CREATE VIEW public.ruled AS SELECT 1 AS id, ''::text AS told;
CREATE RULE ruled_delete AS ON DELETE TO public.ruled DO INSTEAD
    SELECT qpayee FROM secret.payroll WHERE id = 3;
