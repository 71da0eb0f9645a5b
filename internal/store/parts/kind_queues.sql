-- Says which queues kinds $2 give their jobs: $3, in the same order. Of those that $3 does not come to nothing is said. In
-- the kinds' order, so that nodes which start together do not wait for each other in a circle.
queues AS (
    INSERT INTO tenure.kind_queue (kind, queue)
    SELECT k.kind, k.queue FROM unnest($2::text[], $3::text[]) AS k (kind, queue)
    WHERE k.kind IS NOT NULL AND k.queue IS NOT NULL
      AND NOT EXISTS (SELECT FROM tenure.kind_queue q WHERE q.kind = k.kind AND q.queue = k.queue)
    ORDER BY k.kind
    ON CONFLICT (kind) DO UPDATE SET queue = EXCLUDED.queue)
