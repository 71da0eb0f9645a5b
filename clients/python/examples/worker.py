"""A worker outside the cluster. It prints invoices until it is told to stop (SIGTERM):

    python worker.py ADDRESS TOKEN
"""

import os
import signal
import sys
import time

import httpx
from tenure_client import AuthenticatedClient
from tenure_client.api.default import acquire_external, complete_external, fail_external
from tenure_client.models import AcquiredOut, AcquireInBody, CompleteInBody, ErrorModel, FailInBody


def print_invoice(job: AcquiredOut) -> dict:
    print(f"{job.job} prints invoice {job.args['invoice']} of {job.tenant}", flush=True)
    return {"pages": 3}


def handle(client: AuthenticatedClient, job: AcquiredOut) -> None:
    lock = {"job": job.job, "turn": job.turn, "worker": job.worker}
    try:
        output = print_invoice(job)
    except Exception as e:
        answer = fail_external.sync(client=client, body=FailInBody(**lock, error=str(e)))
    else:
        answer = complete_external.sync(client=client, body=CompleteInBody(**lock, output=output))
    if isinstance(answer, ErrorModel):
        print(f"{job.job}: {answer.detail}", file=sys.stderr)  # the lock was lost, and somebody else has the job


state = {"stopping": False, "waiting": False}


def stop(*_) -> None:
    state["stopping"] = True
    if state["waiting"]:
        raise SystemExit(0)  # jobs that are locked as a call of acquire ends are released, uncharged


signal.signal(signal.SIGTERM, stop)
address, token = sys.argv[1:3]
with AuthenticatedClient(base_url=address, token=token, timeout=httpx.Timeout(30)) as client:
    ask = AcquireInBody(topic="invoice.print", worker=f"printer-{os.getpid()}", lock=300, max_=10, wait=20)
    while not state["stopping"]:
        state["waiting"] = True
        try:
            answer = acquire_external.sync(client=client, body=ask)
        except httpx.HTTPError as e:
            answer = e
        state["waiting"] = False
        if answer is None or isinstance(answer, (ErrorModel, httpx.HTTPError)):
            print(answer, file=sys.stderr)
            time.sleep(1)
            continue
        for job in answer.items:
            handle(client, job)
