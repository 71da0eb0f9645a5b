-- Publications that tell subscribers of each day's finished jobs by the name of the day's table, which they lack the next day.
SELECT p.pubname::text FROM pg_publication p
WHERE NOT p.pubviaroot AND EXISTS (
    SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = 'tenure' AND t.tablename LIKE 'completed\_job\_%')
ORDER BY p.pubname;
