-- Writes the reports of runs on a node whose jobs are theirs: the caller has seen to that. It may
-- be done again, and of a job the last ten runs are kept.
CREATE OR REPLACE FUNCTION tenure.write_reports(reports jsonb, node text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    kept CONSTANT integer := 10;
BEGIN
    INSERT INTO tenure.job_report AS r (job_id, turn, attempt, node, started_at, done, total, note, output, lines, left_out)
    SELECT s.job_id, s.turn, s.attempt, write_reports.node, clock_timestamp() - s.age_us * interval '1 microsecond',
        s.done, s.total, s.note, s.output, s.lines, s.left_out
    FROM jsonb_to_recordset(reports) AS s (job_id bigint, turn integer, attempt smallint, age_us bigint,
        done bigint, total bigint, note text, output jsonb, lines jsonb, left_out integer)
    ORDER BY s.job_id
    ON CONFLICT (job_id, turn) DO UPDATE SET written_at = excluded.written_at,
        done = excluded.done, total = excluded.total, note = excluded.note,
        output = excluded.output, lines = excluded.lines, left_out = excluded.left_out;
    DELETE FROM tenure.job_report r
    USING jsonb_to_recordset(reports) AS s (job_id bigint)
    WHERE r.job_id = s.job_id AND r.turn < (
        SELECT k.turn FROM tenure.job_report k WHERE k.job_id = s.job_id
        ORDER BY k.turn DESC OFFSET kept - 1 LIMIT 1);
END
$$;
