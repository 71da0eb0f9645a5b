package flowable

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// unfinishedJob is a job as Flowable shows it. What Tenure has nothing for is null.
type unfinishedJob struct {
	ID                  string  `json:"id"`
	URL                 string  `json:"url"`
	CorrelationID       *string `json:"correlationId"`
	ProcessInstanceID   *string `json:"processInstanceId"` // null: it is shown as part of a case
	ProcessDefinitionID *string `json:"processDefinitionId"`
	ExecutionID         *string `json:"executionId"`
	ScopeID             *string `json:"scopeId"`
	SubScopeID          *string `json:"subScopeId"`
	ScopeDefinitionID   *string `json:"scopeDefinitionId"`
	ScopeType           *scope  `json:"scopeType"`
	ElementID           string  `json:"elementId"`
	ElementName         string  `json:"elementName"`
	Retries             int     `json:"retries"` // the attempts that are left, this one included
	ExceptionMessage    *string `json:"exceptionMessage"`
	DueDate             *moment `json:"dueDate"`
	CreateTime          *moment `json:"createTime"`
	TenantID            string  `json:"tenantId"`
	LockOwner           *string `json:"lockOwner"`
	LockExpirationTime  *moment `json:"lockExpirationTime"`
}

type acquiredJob struct {
	unfinishedJob
	Variables []variable `json:"variables"`
}

// moment is a time as Flowable writes it.
type moment time.Time

func (m moment) MarshalText() ([]byte, error) {
	return time.Time(m).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z"), nil
}

func momentOf(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	return (*moment)(&t)
}

// orNull makes null of what is not there.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (s *server) acquired(r *http.Request, j *external.Job, shown scope) acquiredJob {
	return acquiredJob{s.shown(r, &external.Status{Lock: j.Lock, Until: j.Until, Tenant: j.Tenant, Topic: j.Topic,
		Attempt: j.Attempt - 1, MaxAttempts: j.MaxAttempts, CreatedAt: j.CreatedAt, CorrelationID: j.CorrelationID}, shown), variablesOf(j.Payload)}
}

// shown is a job as part of a process, or of a case: clients let only the first have errors of the business, and
// only the second be terminated. Its correlation id, or its own one, is that of the whole.
func (s *server) shown(r *http.Request, j *external.Status, as scope) unfinishedJob {
	id := strconv.FormatInt(int64(j.Job), 10)
	whole := j.CorrelationID
	if whole == "" {
		whole = id
	}
	out := unfinishedJob{ID: id, URL: s.url(r, id), CorrelationID: orNull(j.CorrelationID), ElementID: j.Topic, ElementName: j.Topic,
		Retries: max(j.MaxAttempts-j.Attempt, 0), ExceptionMessage: orNull(j.Error), DueDate: momentOf(j.Due), CreateTime: momentOf(j.CreatedAt),
		TenantID: string(j.Tenant), LockOwner: orNull(j.Worker), LockExpirationTime: momentOf(j.Until)}
	if as == cmmn {
		out.ScopeID, out.SubScopeID, out.ScopeType = &whole, &id, &as
	} else {
		out.ProcessInstanceID, out.ExecutionID = &whole, &id
	}
	return out
}

func (s *server) url(r *http.Request, id string) string {
	u := url.URL{Scheme: "http", Host: r.Host, Path: s.prefix + Path + "/jobs/" + id}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	return u.String()
}

func getJob(s *server, r *http.Request) (any, error) {
	j, err := s.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.shown(r, &j, bpmn), nil
}

// page is a part of a list, as Flowable has it.
type page struct {
	Data  []unfinishedJob `json:"data"`
	Total int             `json:"total"` // of each pool up to external.MaxListed
	Start int             `json:"start"`
	Sort  string          `json:"sort"`
	Order string          `json:"order"`
	Size  int             `json:"size"`
}

// sorts are what jobs can be sorted by.
var sorts = map[string]external.Sort{"id": external.ByID, "createTime": external.ByCreated, "tenantId": external.ByTenant}

// query is what of a list was asked for.
type query struct {
	external.Filter
	sort  string
	order string
}

// readQuery refuses what it would have to pass over, so that nobody takes all jobs for those that were asked for.
func readQuery(values url.Values) (q query, err error) {
	q = query{sort: "id", order: "asc"}
	q.Limit = 10
	for name := range values {
		if err = q.set(name, values.Get(name)); err != nil {
			return q, err
		}
	}
	if q.Skip+q.Limit > external.MaxListed {
		return q, badRequest(fmt.Sprintf("start and size: %d at most together", external.MaxListed))
	}
	return q, nil
}

func (q *query) set(name, value string) (err error) {
	yes, no := true, false
	switch name {
	case "id":
		if n, no := strconv.ParseInt(value, 10, 64); no == nil && n > 0 {
			q.Job = job.ID(n)
		} else {
			q.Job = -1 // which no job has
		}
	case "tenantId":
		q.Tenants = []tenancy.ID{tenancy.ID(value)}
	case "elementId", "elementName":
		q.Topic = value
	case "processInstanceId", "scopeId":
		q.CorrelationID = value
	case "locked":
		err = set(value, &q.Locked, &yes)
	case "unlocked":
		err = set(value, &q.Locked, &no)
	case "withException":
		err = set(value, &q.Failed, &yes)
	case "start":
		q.Skip, err = natural(value, 0)
	case "size":
		q.Limit, err = natural(value, 1)
	case "sort":
		by, known := sorts[value]
		if q.sort, q.Sort = value, by; !known {
			return badRequest(fmt.Sprintf("Value for param 'sort' is not valid, '%.40s': id, createTime and tenantId are", value))
		}
	case "order":
		if q.order, q.Descending = value, value == "desc"; value != "asc" && value != "desc" {
			return badRequest(fmt.Sprintf("Value for param 'order' is not valid : '%.40s', must be 'asc' or 'desc'", value))
		}
	default:
		return badRequest(fmt.Sprintf("%.40q: Tenure has no such filter", name))
	}
	if err != nil {
		return badRequest(fmt.Sprintf("Value for param '%s' is not valid : '%.40s'", name, value))
	}
	return nil
}

// set chooses jobs if value says so.
func set(value string, filter **bool, to *bool) error {
	asked, err := strconv.ParseBool(value)
	if asked {
		*filter = to
	}
	return err
}

func natural(value string, least int) (int, error) {
	n, err := strconv.Atoi(value)
	if err == nil && (n < least || n > external.MaxListed) {
		err = strconv.ErrRange
	}
	return n, err
}

func listJobs(s *server, r *http.Request) (any, error) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	found, count, err := s.workers.List(r.Context(), q.Filter)
	if err != nil && len(found) == 0 {
		return nil, err // else some pools' jobs are missing
	}
	out := page{Data: make([]unfinishedJob, len(found)), Total: count, Start: q.Skip, Sort: q.sort, Order: q.order, Size: len(found)}
	for i, j := range found {
		out.Data[i] = s.shown(r, &j, bpmn)
	}
	return out, nil
}
