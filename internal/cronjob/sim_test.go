// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// world is an API server that holds one CronJob and its Jobs, a controller as simple as can be, and a clock. Whatever happens is
// put in a row by its time, so that years pass in milliseconds.
type world struct {
	t     testing.TB
	now   time.Time
	cron  *batchv1.CronJob
	jobs  map[string]*batchv1.Job
	serie int // of UIDs and versions

	queue []happening
	order int

	// run says how a new Job fares: after how long it ends, and how; 0: never.
	run func(*batchv1.Job) (time.Duration, batchv1.JobConditionType)
	// fault is asked before every request and may say that it fails, and whether it is carried out all the same.
	fault func(request string) (err error, carriedOut bool)
	// lag is how long the watch takes to tell the controller of a change.
	lag time.Duration

	ctl *controller
	log []string
	// quiet leaves the log empty.
	quiet      bool
	ledgerSize int // 0: the default
	// created are the names of all Jobs that ever were, in order; onCreate looks at each.
	created  []*batchv1.Job
	onCreate func(*batchv1.Job)
	onSync   func(Observed, Plan, Accounting)
}

type happening struct {
	at    time.Time
	order int
	do    func()
}

// controller is what a real one keeps in memory. It is lost when the process ends.
type controller struct {
	cron    *batchv1.CronJob // newest version known
	jobs    map[string]*batchv1.Job
	memory  Memory
	rules   *Rules
	awake   time.Time
	wake    time.Time // of the timer that counts
	writeAt time.Time
	again   bool // decide when the write is done
}

var resource = schema.GroupResource{Group: "batch", Resource: "jobs"}

func at(text string) time.Time {
	t, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err)
	}
	return t
}

type option func(*batchv1.CronJob)

func newCronJob(schedule string, options ...option) *batchv1.CronJob {
	three, one := int32(3), int32(1)
	c := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cj", UID: "3f2a9c1e-0000-4000-8000-000000000001", Generation: 1},
		Spec: batchv1.CronJobSpec{
			Schedule: schedule, ConcurrencyPolicy: batchv1.AllowConcurrent,
			SuccessfulJobsHistoryLimit: &three, FailedJobsHistoryLimit: &one,
		},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

func policy(p batchv1.ConcurrencyPolicy) option {
	return func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = p }
}

func deadline(seconds int64) option {
	return func(c *batchv1.CronJob) { c.Spec.StartingDeadlineSeconds = &seconds }
}

func inZone(name string) option { return func(c *batchv1.CronJob) { c.Spec.TimeZone = &name } }

func suspended(is bool) option { return func(c *batchv1.CronJob) { c.Spec.Suspend = &is } }

func scheduled(text string) option { return func(c *batchv1.CronJob) { c.Spec.Schedule = text } }

func history(successful, failed int32) option {
	return func(c *batchv1.CronJob) {
		c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = &successful, &failed
	}
}

func annotated(pairs ...string) option {
	return func(c *batchv1.CronJob) {
		for i := 0; i < len(pairs); i += 2 {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, pairs[i], pairs[i+1])
		}
	}
}

func lastScheduled(t time.Time) option {
	return func(c *batchv1.CronJob) { c.Status.LastScheduleTime = &metav1.Time{Time: t} }
}

func newWorld(tb testing.TB, start time.Time, c *batchv1.CronJob) *world {
	tb.Helper()
	w := &world{
		t: tb, now: start, cron: c.DeepCopy(), jobs: map[string]*batchv1.Job{},
		run: func(*batchv1.Job) (time.Duration, batchv1.JobConditionType) {
			return 10 * time.Second, batchv1.JobComplete
		},
	}
	w.cron.CreationTimestamp = metav1.NewTime(start.Truncate(time.Second))
	w.stamp(&w.cron.ObjectMeta)
	return w
}

func (w *world) stamp(m *metav1.ObjectMeta) {
	w.serie++
	m.ResourceVersion = fmt.Sprint(w.serie)
}

func (w *world) tell(format string, args ...any) {
	if !w.quiet {
		w.log = append(w.log, w.now.UTC().Format("01-02 15:04:05.000")+"  "+fmt.Sprintf(format, args...))
	}
}

// at makes something happen at an instant.
func (w *world) at(at time.Time, do func()) {
	w.order++
	h := happening{at, w.order, do}
	i := sort.Search(len(w.queue), func(i int) bool {
		q := w.queue[i]
		return q.at.After(at) || q.at.Equal(at) && q.order > h.order
	})
	w.queue = slices.Insert(w.queue, i, h)
}

// until lets time pass.
func (w *world) until(end time.Time) {
	for len(w.queue) > 0 && !w.queue[0].at.After(end) {
		h := w.queue[0]
		w.queue = w.queue[1:]
		if h.at.After(w.now) {
			w.now = h.at
		}
		h.do()
	}
	if end.After(w.now) {
		w.now = end
	}
}

func (w *world) forward(d time.Duration) { w.until(w.now.Add(d)) }

// start begins a controller process that knows nothing but what it lists.
func (w *world) start() {
	w.ctl = &controller{cron: w.cron.DeepCopy(), jobs: map[string]*batchv1.Job{}, awake: w.now}
	for name, j := range w.jobs {
		w.ctl.jobs[name] = j.DeepCopy()
	}
	w.read()
	w.tell("controller starts")
	w.sync()
}

// kill ends it without a word.
func (w *world) kill() {
	w.tell("controller is killed")
	w.ctl = nil
}

func (w *world) read() {
	w.ctl.rules = Read(FromBatch(w.ctl.cron), time.LoadLocation, time.UTC)
}

func (w *world) observe() Observed {
	c := w.ctl
	o := Observed{
		CronJob: FromBatch(c.cron), Rules: c.rules, Memory: c.memory, Now: w.now, Awake: c.awake, Options: DefaultOptions(),
	}
	if w.ledgerSize > 0 {
		o.Options.LedgerSize = w.ledgerSize
	}
	for _, j := range c.jobs {
		if ref := metav1.GetControllerOfNoCopy(j); ref != nil && ref.UID == c.cron.UID {
			o.Children = append(o.Children, ChildFromBatch(j))
		}
	}
	return o
}

// sync decides, acts and accounts.
func (w *world) sync() {
	if w.ctl == nil {
		return
	}
	o := w.observe()
	p := Decide(o)
	out := w.act(p)
	a := Account(o, p, out)
	w.ctl.memory = a.Memory
	if w.onSync != nil {
		w.onSync(o, p, a)
	}
	for _, e := range append(p.Events, a.Events...) {
		w.tell("    %s %s: %s", e.Type, e.Reason, e.Message)
	}
	w.ctl.wake, w.ctl.again = a.Wake, p.AfterStore
	if !a.Wake.IsZero() {
		ctl := w.ctl
		w.at(a.Wake, func() {
			if w.ctl == ctl && ctl.wake.Equal(a.Wake) {
				w.sync()
			}
		})
	}
	w.planWrite()
}

func (w *world) planWrite() {
	ctl := w.ctl
	var at time.Time
	switch ctl.memory.Record(FromBatch(ctl.cron), DefaultOptions()).Urgency {
	case Nothing:
		return
	case Eventually:
		at = w.now.Add(time.Minute)
	case Soon:
		at = w.now.Add(time.Second)
	case AtOnce:
		at = w.now.Add(time.Millisecond)
	}
	if !ctl.writeAt.IsZero() && !at.Before(ctl.writeAt) {
		return // one is planned
	}
	ctl.writeAt = at
	w.at(at, func() {
		if w.ctl == ctl && ctl.writeAt.Equal(at) {
			ctl.writeAt = time.Time{}
			w.write()
		}
	})
}

// write stores the record with the newest version known.
func (w *world) write() {
	ctl := w.ctl
	r := ctl.memory.Record(FromBatch(ctl.cron), DefaultOptions())
	if r.Urgency == Nothing {
		return
	}
	err, carriedOut := w.ask("PUT status")
	if err != nil && !carriedOut {
		w.planWrite()
		return
	}
	if ctl.cron.ResourceVersion != w.cron.ResourceVersion {
		w.tell("PUT status: conflict")
		w.at(w.now.Add(w.lag+time.Millisecond), func() {
			if w.ctl == ctl {
				w.planWrite()
			}
		})
		return
	}
	next := w.cron.DeepCopy()
	next.Status = r.Status.ToBatch()
	if r.Ledger != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, LedgerAnnotation, r.Ledger)
	}
	w.tell("PUT status: %s", describe(next.Status))
	w.store(next)
	if err == nil {
		ctl.cron = w.cron.DeepCopy() // the answer
		w.read()
		if ctl.again {
			w.sync()
		}
	}
}

func describe(s batchv1.CronJobStatus) string {
	var active []string
	for _, ref := range s.Active {
		active = append(active, ref.Name)
	}
	text := "active [" + strings.Join(active, " ") + "]"
	if s.LastScheduleTime != nil {
		text += ", last scheduled " + s.LastScheduleTime.UTC().Format(time.TimeOnly)
	}
	if s.LastSuccessfulTime != nil {
		text += ", last successful " + s.LastSuccessfulTime.UTC().Format(time.TimeOnly)
	}
	return text
}

func (w *world) ask(request string) (error, bool) {
	if w.fault == nil {
		return nil, true
	}
	err, carriedOut := w.fault(request)
	if err != nil {
		w.tell("%s: %v", request, err)
	}
	return err, carriedOut
}

// store keeps a new version of the CronJob and tells the controller.
func (w *world) store(c *batchv1.CronJob) {
	w.stamp(&c.ObjectMeta)
	w.cron = c
	version := c.DeepCopy()
	w.notify(func(ctl *controller) bool {
		if len(version.ResourceVersion) < len(ctl.cron.ResourceVersion) ||
			len(version.ResourceVersion) == len(ctl.cron.ResourceVersion) && version.ResourceVersion <= ctl.cron.ResourceVersion {
			return false // our own answer was faster
		}
		ctl.cron = version
		w.read()
		return true
	})
}

// notify brings a change to the controller's cache, and lets it decide again when apply says so.
func (w *world) notify(apply func(*controller) bool) {
	ctl := w.ctl
	w.at(w.now.Add(w.lag), func() {
		if ctl != nil && w.ctl == ctl && apply(ctl) {
			w.sync()
		}
	})
}

// edit changes the CronJob as a user does.
func (w *world) edit(what string, options ...option) {
	next := w.cron.DeepCopy()
	for _, o := range options {
		o(next)
	}
	if fmt.Sprint(next.Spec) != fmt.Sprint(w.cron.Spec) {
		next.Generation++
	}
	w.tell("user: %s", what)
	w.store(next)
	w.until(w.now.Add(w.lag))
}

// setJob stores a new version of a Job, or its end when j is nil.
func (w *world) setJob(name string, j *batchv1.Job) {
	if j == nil {
		delete(w.jobs, name)
	} else {
		w.stamp(&j.ObjectMeta)
		w.jobs[name] = j
		j = j.DeepCopy()
	}
	w.notify(func(ctl *controller) bool {
		if j == nil {
			delete(ctl.jobs, name)
		} else {
			ctl.jobs[name] = j
		}
		return true
	})
}

// act carries a plan out.
func (w *world) act(p Plan) Outcomes {
	out := Outcomes{At: w.now}
	for _, ref := range p.Check {
		err, _ := w.ask("GET " + ref.Name)
		if j := w.jobs[ref.Name]; err == nil && (j == nil || j.UID != ref.UID) {
			err = apierrors.NewNotFound(resource, ref.Name)
		}
		w.tell("GET %s: %v", ref.Name, err)
		out.Check = append(out.Check, CheckOutcome{Err: err})
	}
	for _, del := range p.Replace {
		err := w.deleteJob(del)
		out.Replace = append(out.Replace, err)
		if err != nil && !apierrors.IsNotFound(err) {
			return out
		}
	}
	for _, s := range p.Start {
		r := w.createJob(s)
		out.Start = append(out.Start, r)
		if r.Err != nil && !apierrors.IsAlreadyExists(r.Err) {
			break
		}
	}
	for _, del := range p.Tidy {
		out.Tidy = append(out.Tidy, w.deleteJob(del))
	}
	return out
}

func (w *world) deleteJob(del Deletion) error {
	err, carriedOut := w.ask("DELETE " + del.Name)
	if err != nil && !carriedOut {
		return err
	}
	j := w.jobs[del.Name]
	if j == nil || j.UID != del.UID {
		return apierrors.NewNotFound(resource, del.Name)
	}
	w.tell("DELETE %s", del.Name)
	w.setJob(del.Name, nil)
	return err
}

func (w *world) createJob(s Start) StartOutcome {
	err, carriedOut := w.ask("POST " + s.Name)
	if err != nil && !carriedOut {
		return StartOutcome{Err: err, At: w.now}
	}
	if old := w.jobs[s.Name]; old != nil {
		w.tell("POST %s: it exists", s.Name)
		child := ChildFromBatch(old)
		return StartOutcome{Err: apierrors.NewAlreadyExists(resource, s.Name), Job: &child, At: w.now}
	}
	job := JobFor(w.ctl.cron, s).DeepCopy()
	w.serie++
	job.UID = types.UID(fmt.Sprintf("job-%d", w.serie))
	job.CreationTimestamp = metav1.NewTime(w.now.Truncate(time.Second))
	job.Status.StartTime = &job.CreationTimestamp
	w.tell("POST %s, due %s", s.Name, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	w.created = append(w.created, job)
	if w.onCreate != nil {
		w.onCreate(job)
	}
	w.setJob(s.Name, job)
	if after, how := w.run(job); after > 0 {
		w.at(w.now.Add(after), func() { w.finish(s.Name, job.UID, how) })
	}
	if err != nil {
		return StartOutcome{Err: err, At: w.now}
	}
	child := ChildFromBatch(job)
	return StartOutcome{Job: &child, At: w.now}
}

// finish ends a Job.
func (w *world) finish(name string, uid types.UID, how batchv1.JobConditionType) {
	j := w.jobs[name]
	if j == nil || j.UID != uid {
		return
	}
	j = j.DeepCopy()
	now := metav1.NewTime(w.now.Truncate(time.Second))
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: now})
	if how == batchv1.JobComplete {
		j.Status.CompletionTime = &now
	}
	w.tell("%s ends: %s", name, how)
	w.setJob(name, j)
}

// remove deletes a Job as a user does.
func (w *world) remove(name string) {
	w.tell("user: deletes %s", name)
	w.setJob(name, nil)
	w.until(w.now.Add(w.lag))
}

// tellHistory writes the ledger to the log, as a command would show it.
func (w *world) tellHistory() {
	c := FromBatch(w.cron)
	o := Observed{CronJob: c, Rules: Read(c, time.LoadLocation, time.UTC), Now: w.now, Options: DefaultOptions()}
	for _, j := range w.jobs {
		o.Children = append(o.Children, ChildFromBatch(j))
	}
	w.log = append(w.log, "history:")
	for _, t := range History(o) {
		w.log = append(w.log, "    "+row(c.Name, t))
	}
}

func row(cronJob string, t Tick) string {
	due := t.Due.UTC().Format("01-02 15:04:05")
	if t.Count > 1 {
		due += fmt.Sprintf(" … %s (%d times)", t.Through.UTC().Format("01-02 15:04:05"), t.Count)
	}
	cells := []string{due, t.String()}
	if t.Outcome == Started {
		cells = append(cells, t.Job(cronJob), "late "+t.Late.String(), "took "+t.Took.String())
	}
	if why := t.Why(); why != "" {
		cells = append(cells, why)
	}
	return strings.Join(cells, "; ")
}

func seededFrom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
