-- What others have made of the ledger's tables, views, row types and functions, so that these cannot be altered or replaced
-- by others: views, columns, defaults, policies, functions and so on. At most ten, and how many there are.
SELECT (array_agg(d.found ORDER BY d.found))[1:10], count(*)
FROM (SELECT DISTINCT format('%s depends on %s', pg_describe_object(d.classid, d.objid, d.objsubid), pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)) AS found
      FROM pg_depend d CROSS JOIN LATERAL pg_identify_object_as_address(d.classid, d.objid, 0) AS depender
      WHERE d.deptype IN ('n', 'a')
        AND (d.refclassid = 'pg_class'::regclass AND d.refobjid IN (SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'tenure'::regnamespace)
             OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (SELECT t.oid FROM pg_type t WHERE t.typnamespace = 'tenure'::regnamespace)
             OR d.refclassid = 'pg_proc'::regclass AND d.refobjid IN (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace))
        AND depender.object_names[1] <> 'tenure' AND depender.object_names[1] NOT LIKE 'tenure.%') d;
