"""A worker outside the cluster. It prints invoices until it is told to stop (SIGTERM):

    python worker.py ADDRESS TOKEN
"""

import json
import os
import signal
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx
from tenure_client import AuthenticatedClient
from tenure_client.api.default import acquire_external, complete_external, fail_external
from tenure_client.models import AcquiredOut, AcquireInBody, CompleteInBody, ErrorModel, FailInBody

JOBS = 10  # at a time
LOCK = 300  # seconds
UNANSWERED = (httpx.HTTPError, ValueError)  # ValueError: a proxy answered, and not a node


def print_invoice(job: AcquiredOut) -> dict:
    print(f"{job.job} prints invoice {job.args['invoice']} of {job.tenant}", flush=True)
    return {"pages": 3}


def end(client: AuthenticatedClient, operation, body, until: float) -> str | None:
    """Says how a job ended until that is answered, or its lock is over. Returns why it was refused."""
    pause = 0.5
    while True:
        try:
            answer = operation.sync_detailed(client=client, body=body)
            status = int(answer.status_code)
            if status < 300:
                return None
            why = f"{status}: {answer.parsed.detail}"
        except UNANSWERED as e:
            status, why = 0, repr(e)
        if status in (400, 413, 422):
            return why
        print(f"{body.job}: {why}", file=sys.stderr)
        if status in (404, 409):  # the lock was lost, maybe as an answer was: this job is not ours any more
            return None
        if time.monotonic() + pause > until:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 30)


def handle(client: AuthenticatedClient, job: AcquiredOut, until: float) -> None:
    lock = {"job": job.job, "turn": job.turn, "worker": job.worker}
    try:
        output = print_invoice(job)
        json.dumps(output, allow_nan=False, ensure_ascii=False).encode()  # raises if it is no JSON
        failure = end(client, complete_external, CompleteInBody(**lock, output=output), until)
    except Exception as e:
        failure = repr(e)
    if failure is not None:  # an output that was refused, such as one that is too large, is a failure, too
        text = failure[:16_000].encode(errors="replace").decode()
        if refused := end(client, fail_external, FailInBody(**lock, error=text), until):
            print(f"{job.job}: {refused}", file=sys.stderr)


state = {"stopping": False, "waiting": False}


def stop(*_) -> None:
    state["stopping"] = True
    if state["waiting"]:
        raise SystemExit(0)  # jobs that are locked as a call of acquire ends are released, uncharged


signal.signal(signal.SIGTERM, stop)
address, token = sys.argv[1:3]
timeout = httpx.Timeout(30, connect=5)
with AuthenticatedClient(base_url=address, token=token, timeout=timeout) as client, ThreadPoolExecutor(JOBS) as threads:
    ask = AcquireInBody(topic="invoice.print", worker=f"printer-{os.getpid()}", lock=LOCK, max_=JOBS, wait=20)
    running = set()
    while not state["stopping"]:
        if len(running) == JOBS:
            running = wait(running, return_when=FIRST_COMPLETED).not_done
        running = {job for job in running if not job.done()}
        ask.max_ = JOBS - len(running)
        state["waiting"] = True
        try:
            answer = acquire_external.sync(client=client, body=ask)
        except UNANSWERED as e:
            answer = e
        state["waiting"] = False
        if answer is None or isinstance(answer, (ErrorModel, *UNANSWERED)):
            print(answer, file=sys.stderr)
            time.sleep(1)
            continue
        until = time.monotonic() + LOCK
        running |= {threads.submit(handle, client, job, until) for job in answer.items}
