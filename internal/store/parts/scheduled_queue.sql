-- The queue that nodes give the kind of schedule s, where neither the schedule nor this process says one.
(SELECT q.queue FROM tenure.kind_queue q WHERE NOT s.external AND q.kind = s.kind)
