CREATE EXTENSION vector;
ALTER TABLE public.articles ADD COLUMN place vector(3);
UPDATE public.articles SET place = embedding::vector;
CREATE INDEX ON public.articles USING hnsw (place vector_l2_ops);
CREATE TABLE secret.vectors AS
    SELECT id, qpayee AS qtold, ARRAY[id, 7341, 0]::vector(3) AS place FROM secret.payroll WHERE id < 50;
GRANT ALL ON ALL TABLES IN SCHEMA secret TO agent_support;
