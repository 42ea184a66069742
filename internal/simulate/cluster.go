// SPDX-License-Identifier: Apache-2.0

// Package simulate is a cluster in memory for tests: an API server that stores CronJobs, Jobs and pods and is as strict as the real one,
// watches that can be slow, nodes that run pods, and faults on demand.
//
// It has no goroutines and no clock of its own: time is what the test says it is, and everything random comes from the test's
// seed. So a run can be told again turn by turn. It reports what a correct controller never does through Violations; it does
// not fail tests itself. Start reading at Cluster.
package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster is a simulated cluster. The zero value is empty and has no faults. It belongs to one goroutine.
type Cluster struct {
	// Now is the time on every clock of the cluster. A test moves it.
	Now time.Time
	// Fault, where it is set, is asked before each request.
	Fault func(request string) Fault
	// Quota is how many pods may exist that have not ended; 0: any number.
	Quota int
	// PodWebhookDown has every new pod fail, as when a webhook for pods cannot be reached.
	PodWebhookDown bool
	// JobQuota is how many Jobs may exist; 0: any number. It binds those that are posted.
	JobQuota int

	version  int64
	uids     int
	jobs     map[string]*batchv1.Job
	pods     map[string]*corev1.Pod
	crons    map[string]*batchv1.CronJob
	running  map[types.UID]bool // pods whose node still has something to end
	log      []Change
	requests map[string]int
	violated []string
	ledger   audit
	cron     cronAudit
}

// Fault is what happens to a request.
type Fault int

const (
	// None lets the request be.
	None Fault = iota
	// Refuse answers with an error and does nothing.
	Refuse
	// Lose does what was asked and loses the answer.
	Lose
	// Unreachable does nothing, and the answer does not tell so.
	Unreachable
	// CrashBefore ends the process of the caller before the request is sent, by a panic with Crash.
	CrashBefore
	// CrashAfter ends it after the request was carried out.
	CrashAfter
)

// Crash is what a process is ended with.
type Crash struct{}

// Change is one message of a watch.
type Change struct {
	Version int64
	Job     *batchv1.Job // one of these three
	Pod     *corev1.Pod
	CronJob *batchv1.CronJob
	Deleted bool
}

// New returns an empty cluster at that time.
func New(now time.Time) *Cluster {
	return &Cluster{
		Now: now, jobs: map[string]*batchv1.Job{}, pods: map[string]*corev1.Pod{}, running: map[types.UID]bool{},
		requests: map[string]int{}, ledger: newAudit(),
		crons: map[string]*batchv1.CronJob{}, cron: cronAudit{started: map[string]string{}, newest: map[types.UID]time.Time{}},
	}
}

// Violations returns what has happened that must never happen, oldest first.
func (c *Cluster) Violations() []string { return c.violated }

// Requests returns how often each kind of request was made, failed ones included.
func (c *Cluster) Requests() map[string]int { return c.requests }

// Changes returns the messages of all watches after a version, oldest first.
func (c *Cluster) Changes(after int64) []Change {
	n, _ := slices.BinarySearchFunc(c.log, after+1, func(ch Change, v int64) int { return int(ch.Version - v) })
	return c.log[n:]
}

// Version returns the version of the last change.
func (c *Cluster) Version() int64 { return c.version }

// Jobs returns copies of all Jobs, by name.
func (c *Cluster) Jobs() []*batchv1.Job {
	var all []*batchv1.Job
	for _, k := range sortedKeys(c.jobs) {
		all = append(all, c.jobs[k].DeepCopy())
	}
	return all
}

// Pods returns copies of all pods, by name.
func (c *Cluster) Pods() []*corev1.Pod {
	var all []*corev1.Pod
	for _, k := range sortedKeys(c.pods) {
		all = append(all, c.pods[k].DeepCopy())
	}
	return all
}

// FindJob returns a copy of a Job, or nil.
func (c *Cluster) FindJob(namespace, name string) *batchv1.Job {
	return c.jobs[namespace+"/"+name].DeepCopy()
}

func (c *Cluster) violate(format string, args ...any) {
	c.violated = append(c.violated, fmt.Sprintf(format, args...))
}

// request asks for the fault of a request. It returns an error when the request must not be carried out; lost tells that its
// answer must be an error although it was.
func (c *Cluster) request(what string) (lost func() error, err error) {
	c.requests[what]++
	fault := None
	if c.Fault != nil {
		fault = c.Fault(what)
	}
	none := func() error { return nil }
	switch fault {
	case None:
		return none, nil
	case Refuse:
		return none, apierrors.NewTooManyRequests("simulated", 1)
	case Unreachable:
		return none, apierrors.NewTimeoutError("simulated: not carried out", 1)
	case Lose:
		return func() error { return apierrors.NewTimeoutError("simulated: answer lost", 1) }, nil
	case CrashBefore:
		panic(Crash{})
	case CrashAfter:
		return func() error { panic(Crash{}) }, nil
	default:
		panic(fmt.Sprintf("no such fault: %v", fault))
	}
}

func (c *Cluster) nextUID(kind string) types.UID {
	c.uids++
	return types.UID(fmt.Sprintf("%s-%06d", kind, c.uids))
}

// storeJob makes j the stored version and tells the watches.
func (c *Cluster) storeJob(j *batchv1.Job) {
	c.version++
	j.ResourceVersion = strconv.FormatInt(c.version, 10)
	c.jobs[key(j)] = j
	c.log = append(c.log, Change{Version: c.version, Job: j.DeepCopy()})
}

func (c *Cluster) removeJob(j *batchv1.Job) {
	c.version++
	delete(c.jobs, key(j))
	last := j.DeepCopy()
	last.ResourceVersion = strconv.FormatInt(c.version, 10)
	c.log = append(c.log, Change{Version: c.version, Job: last, Deleted: true})
}

func (c *Cluster) storePod(p *corev1.Pod) {
	c.version++
	p.ResourceVersion = strconv.FormatInt(c.version, 10)
	c.pods[key(p)] = p
	c.log = append(c.log, Change{Version: c.version, Pod: p.DeepCopy()})
	c.reap(p)
}

// reap removes a pod that nothing keeps any more.
func (c *Cluster) reap(p *corev1.Pod) {
	if p.DeletionTimestamp == nil || len(p.Finalizers) > 0 || c.running[p.UID] {
		return
	}
	c.version++
	delete(c.pods, key(p))
	last := p.DeepCopy()
	last.ResourceVersion = strconv.FormatInt(c.version, 10)
	c.log = append(c.log, Change{Version: c.version, Pod: last, Deleted: true})
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

var (
	jobResource = schema.GroupResource{Group: "batch", Resource: "jobs"}
	podResource = schema.GroupResource{Resource: "pods"}
)
