"""Enqueues a job for a worker outside the cluster, and waits for its end:

    python enqueue.py ADDRESS TOKEN TENANT
"""

import sys
import time

from tenure_client import AuthenticatedClient
from tenure_client.api.default import enqueue_job, get_job
from tenure_client.models import NewJob, ErrorModel

address, token, tenant = sys.argv[1:4]
with AuthenticatedClient(base_url=address, token=token) as client:
    body = NewJob(tenant=tenant, kind="invoice.print", args={"invoice": 42}, external=True)
    added = enqueue_job.sync(client=client, body=body, idempotency_key="invoice:42")  # asking again does not add it again
    if added is None or isinstance(added, ErrorModel):
        sys.exit(f"not enqueued: {added}")
    while True:
        job = get_job.sync(added.id, client=client)
        if job is None or isinstance(job, ErrorModel):
            sys.exit(f"not found: {job}")
        if job.state in ("done", "dead", "cancelled", "business_error"):
            print(added.id, job.state)
            break
        time.sleep(0.2)
