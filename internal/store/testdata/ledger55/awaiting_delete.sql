-- Removes those of the jobs that await others of which the rows have all gone to the other pool. To be
-- run behind awaited_delete.sql in the same transaction. $1 the lines that awaited_move.sql has read.
DELETE FROM tenure.awaiting w
WHERE w.job_id = ANY (ARRAY(SELECT (l.text::jsonb -> 'awaiting' ->> 'job_id')::bigint FROM unnest($1::text[]) AS l (text)))
  AND NOT EXISTS (SELECT FROM tenure.awaited a WHERE a.awaiting_id = w.job_id);
