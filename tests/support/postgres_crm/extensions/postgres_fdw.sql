CREATE EXTENSION postgres_fdw;
CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '127.0.0.1', port '$PORT', dbname 'crm');
CREATE USER MAPPING FOR agent_support SERVER itself
    OPTIONS (user 'agent_support', password 'crm-agent-7');
CREATE USER MAPPING FOR sluice SERVER itself
    OPTIONS (user 'agent_support', password 'crm-agent-7');
CREATE FOREIGN TABLE public.far_payroll (id int, qpayee text)
    SERVER itself OPTIONS (schema_name 'secret', table_name 'payroll');
CREATE FOREIGN TABLE public.far_tickets (id int, title text)
    SERVER itself OPTIONS (schema_name 'api', table_name 'view_of_tickets');
CREATE VIEW api.view_of_tickets AS SELECT id, qpayee AS title FROM secret.payroll;
CREATE TABLE public.far_parted (id int, qpayee text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE public.far_part PARTITION OF public.far_parted FOR VALUES FROM (0) TO (2000)
    SERVER itself OPTIONS (schema_name 'secret', table_name 'payroll');
GRANT USAGE ON FOREIGN SERVER itself TO agent_support;
GRANT ALL ON ALL TABLES IN SCHEMA public, api TO agent_support;
