-- Notes a step of an operation, in its transaction, and in the audit what became of it once it has ended. $1 id, $2 up to which
-- id it has got, $8 of which of the tables of jobs, $3 done, $4 whose key is taken, $5 left for other reasons, $6 whether there
-- may be more, $7 how many ms after this one was the next step is due, by the rate; 0: there is none.
WITH ended AS (
    UPDATE tenure.operation
    SET after_id = $2, done = done + $3, key_taken = key_taken + $4, left_dead = left_dead + $5, failure = NULL, pass = $8,
        next_at = CASE WHEN $7::bigint > 0 THEN greatest(next_at + $7::bigint * interval '1 ms', clock_timestamp()) ELSE clock_timestamp() END,
        state = CASE WHEN $6::boolean THEN state ELSE 'done' END, ended_at = CASE WHEN NOT $6::boolean THEN clock_timestamp() END
    WHERE id = $1
    RETURNING *)
{{operation_end}};
