"""A worker as one writes it for Flowable, with Flowable's client. A job's variable "what" says what is to become
of it; a line for each goes to the test that has started this."""

import sys
import threading

from flowable.external_worker_client import ExternalWorkerClient
from flowable.external_worker_client.restclient import FlowableExternalWorkerRestClient
from requests.auth import HTTPBasicAuth

host, password, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
auth = HTTPBasicAuth("anybody", password)
left, done = jobs, threading.Event()


def handle(job, result):
    global left
    variables = {v.name: v for v in job.variables}
    what = variables["what"].value if "what" in variables else "terminate"
    n = variables["n"]
    # One write for each line: several threads print.
    print(f"{job.id} {what} {job.tenant_id} {job.scope_type or 'bpmn'} {job.retries} {job.lock_owner} {n.type} {n.value}\n", end="", flush=True)
    assert (job.lock_expiration_time - job.create_time).total_seconds() > 1700
    left -= 1
    if left == 0:
        done.set()
    if what == "complete":
        return result.success().variable_int("pages", 3).variable_string("printer", "hp").variable_float("cost", 0.25)
    if what == "plain":
        return None
    if what == "fail" and job.retries > 9:
        return result.failure().error_message("no paper").error_details("tray 2").retries(job.retries - 1).retry_timeout("PT0S")
    if what == "fail":
        return result.failure().error_message("still no paper").retries(0)
    if what == "error":
        return result.bpmn_error().error_code("no_address").variable_int("customer", 42)
    if what == "throw":
        raise RuntimeError("out of order")
    return result.cmmn_terminate().variable_string("by", "a case")


rest = FlowableExternalWorkerRestClient(host, "python", auth)
listed = rest.list_jobs()
assert listed.total == len(listed.data) == jobs - 1, listed.total  # one is handled twice
assert rest.get_job(listed.data[0].id).tenant_id == "acme"
client = ExternalWorkerClient(flowable_host=host, worker_id="python", auth=auth)
subscriptions = [
    client.subscribe("print", handle, lock_duration="PT30M", number_of_tasks=2, wait_period_seconds=0.05),
    client.subscribe("case", handle, lock_duration="PT30M", scope_type="cmmn", wait_period_seconds=0.05),
]
if not done.wait(30):
    sys.exit("some jobs did not come")
for s in subscriptions:
    s.unsubscribe()
