-- What drivers are compared with: a row of each type, and a function that says something.
CREATE TYPE public.mood AS ENUM ('calm', 'cross');
CREATE TYPE public.place AS (city text, floor int);
CREATE DOMAIN public.percent AS int CHECK (VALUE BETWEEN 0 AND 100);
CREATE TABLE public.kinds (
    id int PRIMARY KEY, truth bool, small int2, middle int4, large int8, exact numeric(20, 6),
    single float4, double float8, words text, fixed char(5), limited varchar(9), one "char",
    raw bytea, day date, clock time, clock_there timetz, moment timestamp, moment_there timestamptz,
    span interval, unique_id uuid, document json, binary_document jsonb, numbers int[],
    texts text[], grid int[][], address inet, net cidr, card macaddr, bits bit(4), many_bits varbit,
    spot point, area box, price money, few int4range, days daterange, several int4multirange,
    search tsvector, question tsquery, feeling public.mood, stood public.place,
    share public.percent, path jsonpath, object oid, class regclass, feelings public.mood[]
);
INSERT INTO public.kinds VALUES (
    1, true, -32768, 2147483647, 9007199254740993, 12345678901234.567891, 1.5, -0.1, 'naïve 😀 ''quoted''',
    'ab', 'limited', 'x', '\x00ff10', '2026-02-28', '23:59:59.123456', '12:00:00+05:30',
    '2026-02-28 12:34:56.789', '2026-02-28 12:34:56.789+00', '1 year 2 mons 3 days 04:05:06.7',
    '0190a0b0-1234-7abc-8def-0123456789ab', '{"b": 1, "a": [null, 2.50]}', '{"b": 1, "a": [null, 2.50]}',
    '{1,NULL,3}', '{"a,b","c\"d",NULL,""}', '{{1,2},{3,4}}', '192.168.1.5/24', '10.0.0.0/8',
    '08:00:2b:01:02:03', '1010', '101', '(1.5,-2)', '((0,0),(1,1))', '$1,234.50', '[1,10)',
    '[2026-01-01,2026-02-01)', '{[1,3),[7,9)}', 'a fat cat', 'fat & !rat', 'cross', '("Old Town",3)', 42,
    '$.a[*] ? (@ > 1)', 4294967295, 'public.tickets', '{calm,cross}'
), (
    2, false, 0, 0, -9223372036854775808, 'NaN', 'Infinity', '-Infinity', '', '', '', '', '', 'infinity',
    '00:00', '00:00-15:59', '-infinity', 'infinity', '-1 days', '00000000-0000-0000-0000-000000000000',
    'null', 'null', '{}', '{}', '{}', '::1', '::/0', '00:00:00:00:00:00', '0000', '', '(0,0)', '((0,0),(0,0))',
    '-$0.01', 'empty', '(,)', '{}', '', '', 'calm', '(,)', 0, '$', 0, 0, '{}'
), (
    3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
);
CREATE FUNCTION public.remark(said text) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN RAISE NOTICE 'remark: %', said USING DETAIL = 'a detail', HINT = 'a hint'; RETURN 1; END $$;
GRANT SELECT ON public.kinds TO agent_support;
