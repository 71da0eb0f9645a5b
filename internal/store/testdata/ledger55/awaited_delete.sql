-- Removes what is durable in the other pool, but for the jobs that await. $1 the lines that
-- awaited_move.sql has read.
WITH line AS MATERIALIZED (SELECT l.text::jsonb AS line FROM unnest($1::text[]) AS l (text)),
awaited AS (
    DELETE FROM tenure.awaited a USING line
    WHERE a.job_id = (line.line -> 'awaited' ->> 'job_id')::bigint AND a.awaiting_id = (line.line -> 'awaited' ->> 'awaiting_id')::bigint)
DELETE FROM tenure.awaited_end e USING line WHERE e.id = (line.line -> 'awaited_end' ->> 'id')::bigint;
