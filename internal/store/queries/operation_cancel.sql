-- Ends an operation; a step that is under way is waited for. $1 id. A row, unless it is not here, with
-- whether it was under way. What it has done by then is noted.
WITH it AS (SELECT id, ended_at FROM tenure.operation WHERE id = $1 FOR UPDATE),
ended AS (
    UPDATE tenure.operation o SET state = 'cancelled', ended_at = clock_timestamp()
    FROM it WHERE o.id = it.id AND it.ended_at IS NULL
    RETURNING o.*),
noted AS (
    {{operation_end}})
SELECT ended_at IS NULL FROM it;
