// A worker as one writes it for Flowable, with Flowable's client. A job's variable "what" says what is to become
// of it; a line for each goes to the test that has started this.
const { ExternalWorkerClient } = require("@flowable-oss/external-worker-client");

const [flowableHost, password, jobs] = process.argv.slice(2);
const client = new ExternalWorkerClient({ flowableHost, workerId: "node-js", auth: { username: "anybody", password } });
const subscriptions = [];
let left = Number(jobs);

function handle(job, result) {
  const variables = Object.fromEntries(job.variables.map((v) => [v.name, v]));
  const { what = { value: "terminate" }, n = {} } = variables;
  console.log([job.id, what.value, job.tenantId, job.scopeType ?? "bpmn", job.retries, job.lockOwner, n.type, n.value].join(" "));
  if (--left === 0) subscriptions.forEach((s) => s.unsubscribe());
  switch (what.value) {
    case "complete":
      return result.success().variable("pages", 3, "integer").variable("printer", "hp", "string").variable("cost", 0.25, "double");
    case "plain":
      return undefined;
    case "fail":
      if (job.retries > 9) {
        return result.failure().errorMessage("no paper").errorDetails("tray 2").retries(job.retries - 1).retryTimeout("PT0S");
      }
      return result.failure().errorMessage("still no paper").retries(0);
    case "error":
      return result.bpmnError().errorCode("no_address").variable("customer", 42, "long");
    case "throw":
      throw "out of order";
    default:
      return result.cmmnTerminate().variable("by", "a case", "string");
  }
}

const asked = { callbackHandler: handle, lockDuration: "PT30M", waitPeriodSeconds: 0.05 };
subscriptions.push(client.subscribe({ ...asked, topic: "print", numberOfTasks: 2 }));
subscriptions.push(client.subscribe({ ...asked, topic: "case", scopeType: "cmmn" }));
