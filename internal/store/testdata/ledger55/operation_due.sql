-- In how many ms the next step of an operation is due; null: none is under way.
SELECT (extract(epoch FROM min(next_at) - clock_timestamp()) * 1000)::bigint AS due_ms
FROM tenure.operation WHERE ended_at IS NULL;
