// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// turn is everything that a client can see of one decision.
type turn struct {
	Check, Replace, Start, Tidy []string
	Events                      []string // type, reason, message
	Wake                        string   // from now; "" never
	Active                      []string // as they will be stored
	LastSchedule, LastSuccess   string
	Write                       Urgency
}

// situation is what a decision finds.
type situation struct {
	cron     *batchv1.CronJob
	children []Child
	now      string
	before   string // when a decision was made already; "": never
	awake    string // "": always
	answers  func(Plan) Outcomes

	answersBefore func(Plan) Outcomes
}

// created is when the CronJobs of these tests were created: a Thursday.
const created = "2016-05-19 10:00:00"

// decide carries a decision through to what must be stored.
func (s situation) decide(t *testing.T) turn {
	t.Helper()
	if s.cron.CreationTimestamp.IsZero() {
		s.cron.CreationTimestamp = metav1.NewTime(at(created))
	}
	o := Observed{CronJob: FromBatch(s.cron), Children: s.children, Now: at(s.now), Options: DefaultOptions()}
	o.Rules = Read(o.CronJob, time.LoadLocation, time.UTC)
	if s.awake != "" {
		o.Awake = at(s.awake)
	}
	if s.before != "" {
		o.Now = at(s.before)
		p := Decide(o)
		answers := succeed
		if s.answersBefore != nil {
			answers = s.answersBefore
		}
		o.Memory = Account(o, p, answers(p)).Memory
		o.Now = at(s.now)
	}
	p := Decide(o)
	answers := succeed
	if s.answers != nil {
		answers = s.answers
	}
	a := Account(o, p, answers(p))
	r := a.Memory.Record(o.CronJob, o.Options)
	out := turn{Write: r.Urgency, LastSchedule: short(r.Status.LastSchedule), LastSuccess: short(r.Status.LastSuccess)}
	for _, ref := range p.Check {
		out.Check = append(out.Check, ref.Name)
	}
	for _, d := range p.Replace {
		out.Replace = append(out.Replace, d.Name)
	}
	for _, st := range p.Start {
		out.Start = append(out.Start, st.Name)
	}
	for _, d := range p.Tidy {
		out.Tidy = append(out.Tidy, d.Name)
	}
	for _, e := range append(p.Events, a.Events...) {
		out.Events = append(out.Events, e.Type+" "+e.Reason+": "+e.Message)
	}
	if !a.Wake.IsZero() {
		out.Wake = a.Wake.Sub(o.Now).String()
	}
	for _, ref := range r.Status.Active {
		out.Active = append(out.Active, ref.Name)
	}
	return out
}

func short(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("01-02 15:04:05")
}

// succeed answers that everything has worked, and that Jobs asked for exist.
func succeed(p Plan) Outcomes {
	var out Outcomes
	for range p.Check {
		out.Check = append(out.Check, CheckOutcome{})
	}
	for range p.Replace {
		out.Replace = append(out.Replace, nil)
	}
	for _, s := range p.Start {
		out.Start = append(out.Start, StartOutcome{Job: &Child{
			Name: s.Name, UID: types.UID("uid of " + s.Name), Controller: uid, Created: s.Due, Due: s.Due.UTC(),
		}})
	}
	for range p.Tidy {
		out.Tidy = append(out.Tidy, nil)
	}
	return out
}

const uid = types.UID("3f2a9c1e-0000-4000-8000-000000000001")

// job returns a Job that was started for a due time; more says how it fares.
func job(due string, more ...func(*Child)) Child {
	c := Child{
		Name: JobName("cj", at(due)), UID: types.UID("uid of " + JobName("cj", at(due))), Controller: uid,
		Created: at(due), Started: at(due), Due: at(due),
	}
	for _, m := range more {
		m(&c)
	}
	return c
}

func ended(how Result, when string) func(*Child) {
	return func(c *Child) { c.Result, c.Ended = how, at(when) }
}

// byHand makes it a Job that "kubectl create job --from" has made.
func byHand(name string) func(*Child) {
	return func(c *Child) { c.Name, c.UID, c.Due = name, types.UID("uid of "+name), time.Time{} }
}

// lists makes the CronJob list a Job as active.
func listing(jobs ...Child) option {
	return func(c *batchv1.CronJob) {
		for _, j := range jobs {
			c.Status.Active = append(c.Status.Active, corev1.ObjectReference{
				APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: j.Name, UID: j.UID,
			})
		}
	}
}

func last(due string) option { return lastScheduled(at(due)) }

func answering(change func(*Outcomes)) func(Plan) Outcomes {
	return func(p Plan) Outcomes {
		out := succeed(p)
		change(&out)
		return out
	}
}

// startFails answers a creation with an error, and with the Job that has its name already.
func startFails(err error, existing *Child) func(Plan) Outcomes {
	return answering(func(o *Outcomes) { o.Start = []StartOutcome{{Err: err, Job: existing}} })
}

var errRefused = errors.New("connection refused")

const hourly = "0 * * * ?"

// The rows of the specification's tables 4.1, 4.2 and 7.2.
func TestDecisions(t *testing.T) {
	due11 := job("2016-05-19 11:00:00")
	due10 := job("2016-05-19 10:00:00")
	old := job("2016-05-19 09:00:00", ended(Complete, "2016-05-19 09:05:00"))
	const (
		saw      = "Normal SawCompletedJob: Saw completed job: "
		made     = "Normal SuccessfulCreate: Created job "
		removed  = "Normal SuccessfulDelete: Deleted job "
		isActive = "Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid"
		tooMany  = "Warning TooManyMissedTimes: too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
		strange  = "Warning UnexpectedJob: Saw a job that the controller did not create or forgot: "
	)
	for name, tc := range map[string]struct {
		situation
		want turn
	}{
		// When Jobs are started.
		"never ran, not time": {
			situation{cron: newCronJob(hourly), now: "2016-05-19 10:30:00"},
			turn{Wake: "30m0s"},
		},
		"never ran, is time, Allow": {
			situation{cron: newCronJob(hourly), now: "2016-05-19 11:00:01"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "59m59s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"never ran, is time, Forbid": {
			situation{cron: newCronJob(hourly, policy(batchv1.ForbidConcurrent)), now: "2016-05-19 11:00:01"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "59m59s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"never ran, is time, Replace": {
			situation{cron: newCronJob(hourly, policy(batchv1.ReplaceConcurrent)), now: "2016-05-19 11:00:01"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "59m59s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"at the very instant": {
			situation{cron: newCronJob(hourly), now: "2016-05-19 11:00:00"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "1h0m0s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"is time in another zone": {
			situation{cron: newCronJob("0 20 * * *", inZone("Asia/Tokyo")), now: "2016-05-19 11:00:01"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "23h59m59s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"a zone in the schedule outdoes timeZone": {
			situation{cron: newCronJob("TZ=Asia/Tokyo 0 20 * * *", inZone("Europe/Berlin")), now: "2016-05-19 11:00:01"},
			turn{
				Start: []string{due11.Name}, Wake: "23h59m59s", Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
				Events: []string{
					`Warning UnsupportedSchedule: CRON_TZ or TZ used in schedule "TZ=Asia/Tokyo 0 20 * * *" is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details`,
					made + due11.Name,
				},
			},
		},
		"previous done, is time": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10)), now: "2016-05-19 11:00:01",
				children: []Child{job("2016-05-19 10:00:00", ended(Complete, "2016-05-19 10:10:00"))},
			},
			turn{
				Start: []string{due11.Name}, Events: []string{saw + due10.Name + ", condition: Complete", made + due11.Name}, Wake: "59m59s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", LastSuccess: "05-19 10:10:00", Write: Soon,
			},
		},
		"still active, not time": {
			situation{cron: newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10)), children: []Child{due10}, now: "2016-05-19 10:30:00"},
			turn{Wake: "30m0s", Active: []string{due10.Name}, LastSchedule: "05-19 10:00:00"},
		},
		"still active, is time, Allow": {
			situation{cron: newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10)), children: []Child{due10}, now: "2016-05-19 11:00:01"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "59m59s",
				Active: []string{due10.Name, due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"still active, is time, Forbid": {
			situation{
				cron:     newCronJob(hourly, policy(batchv1.ForbidConcurrent), last("2016-05-19 10:00:00"), listing(due10)),
				children: []Child{due10}, now: "2016-05-19 11:00:01",
			},
			turn{Events: []string{isActive}, Wake: "59m59s", Active: []string{due10.Name}, LastSchedule: "05-19 10:00:00", Write: Eventually},
		},
		"still active, is time, Replace": {
			situation{
				cron:     newCronJob(hourly, policy(batchv1.ReplaceConcurrent), last("2016-05-19 10:00:00"), listing(due10)),
				children: []Child{due10}, now: "2016-05-19 11:00:01",
			},
			turn{
				Replace: []string{due10.Name}, Start: []string{due11.Name}, Events: []string{removed + due10.Name, made + due11.Name},
				Wake: "59m59s", Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"still active, Replace, the delete fails: nothing is started": {
			situation{
				cron:     newCronJob(hourly, policy(batchv1.ReplaceConcurrent), last("2016-05-19 10:00:00"), listing(due10)),
				children: []Child{due10}, now: "2016-05-19 11:00:01",
				answers: answering(func(o *Outcomes) { o.Replace, o.Start = []error{errRefused}, nil }),
			},
			turn{
				Replace: []string{due10.Name}, Start: []string{due11.Name}, Events: []string{"Warning FailedDelete: Deleted job: connection refused"},
				Wake: "500ms", Active: []string{due10.Name}, LastSchedule: "05-19 10:00:00", Write: Eventually,
			},
		},
		"still active, Replace, the Job is gone already": {
			situation{
				cron:     newCronJob(hourly, policy(batchv1.ReplaceConcurrent), last("2016-05-19 10:00:00"), listing(due10)),
				children: []Child{due10}, now: "2016-05-19 11:00:01",
				answers: answering(func(o *Outcomes) { o.Replace = []error{apierrors.NewNotFound(resource, due10.Name)} }),
			},
			turn{
				Replace: []string{due10.Name}, Start: []string{due11.Name}, Events: []string{made + due11.Name},
				Wake: "59m59s", Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"this run is done, and the clock went back": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 11:00:00"), listing(due11)), children: []Child{due11},
				before: "2016-05-19 11:00:01", now: "2016-05-19 10:59:58",
			},
			turn{Wake: "1h0m2s", Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00"},
		},

		// When none are.
		"suspended": {
			situation{cron: newCronJob(hourly, suspended(true)), now: "2016-05-19 11:00:01"},
			turn{Write: Eventually},
		},
		"suspended, and a Job has ended": {
			situation{
				cron: newCronJob(hourly, suspended(true), last("2016-05-19 10:00:00"), listing(due10)), now: "2016-05-19 11:00:01",
				children: []Child{job("2016-05-19 10:00:00", ended(Failed, "2016-05-19 10:10:00"))},
			},
			turn{Events: []string{saw + due10.Name + ", condition: Failed"}, LastSchedule: "05-19 10:00:00", Write: Soon},
		},
		"being deleted, and a Job has ended": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10), func(c *batchv1.CronJob) {
					c.DeletionTimestamp = &metav1.Time{Time: at(created)}
				}),
				now: "2016-05-19 11:00:01", children: []Child{job("2016-05-19 10:00:00", ended(Complete, "2016-05-19 10:10:00"))},
			},
			turn{
				Events: []string{saw + due10.Name + ", condition: Complete"}, LastSchedule: "05-19 10:00:00", LastSuccess: "05-19 10:10:00", Write: Soon,
			},
		},
		"invalid schedule": {
			situation{cron: newCronJob("invalid schedule"), now: "2016-05-19 11:00:01"},
			turn{Events: []string{`Warning UnparseableSchedule: unparseable schedule: "invalid schedule" : expected exactly 5 fields, found 2: [invalid schedule]`}},
		},
		"invalid schedule, told before": {
			situation{cron: newCronJob("invalid schedule"), before: "2016-05-19 10:30:00", now: "2016-05-19 11:00:01"},
			turn{},
		},
		"a schedule that panicked once": {
			situation{cron: newCronJob("TZ=0"), now: "2016-05-19 11:00:01"},
			turn{Events: []string{
				`Warning UnsupportedSchedule: CRON_TZ or TZ used in schedule "TZ=0" is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details`,
				`Warning UnparseableSchedule: unparseable schedule: "TZ=0" : invalid schedule format: "TZ=0" names a time zone and nothing after it`,
			}},
		},
		"never due": {
			situation{cron: newCronJob("59 23 31 2 *"), now: "2016-05-19 11:00:01"},
			turn{Events: []string{"Warning InvalidSchedule: invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"}},
		},
		"invalid zone": {
			situation{cron: newCronJob(hourly, inZone("broken")), now: "2016-05-19 11:00:01"},
			turn{Events: []string{`Warning UnknownTimeZone: invalid timeZone: "broken": unknown time zone broken`}},
		},

		// startingDeadlineSeconds.
		"within the deadline": {
			situation{cron: newCronJob(hourly, deadline(10)), now: "2016-05-19 11:00:10"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "59m50s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"past the deadline": {
			situation{cron: newCronJob(hourly, deadline(10)), now: "2016-05-19 11:00:11"},
			turn{Events: []string{"Warning MissSchedule: Missed scheduled time to start a job: Thu, 19 May 2016 11:00:00 +0000"}, Wake: "59m49s", Write: Eventually},
		},
		"past the deadline, told before": {
			situation{cron: newCronJob(hourly, deadline(10)), before: "2016-05-19 11:00:11", now: "2016-05-19 11:00:20"},
			turn{Wake: "59m40s", Write: Eventually},
		},
		"a deadline of nothing": {
			situation{cron: newCronJob(hourly, deadline(0)), now: "2016-05-19 11:00:00"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "1h0m0s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"every hour, a deadline of ten seconds": {
			situation{cron: newCronJob("@every 1h", deadline(10)), now: "2016-05-19 11:00:05"},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "59m55s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"every hour, past a deadline of ten seconds": {
			situation{cron: newCronJob("@every 1h", deadline(10)), now: "2016-05-19 11:00:15"},
			turn{Events: []string{"Warning MissSchedule: Missed scheduled time to start a job: Thu, 19 May 2016 11:00:00 +0000"}, Wake: "59m45s", Write: Eventually},
		},

		// Many missed.
		"long overdue, Allow: one Job and a warning": {
			situation{cron: newCronJob(hourly), now: "2016-05-26 11:00:01"},
			turn{
				Start: []string{job("2016-05-26 11:00:00").Name}, Events: []string{tooMany, made + job("2016-05-26 11:00:00").Name}, Wake: "59m59s",
				Active: []string{job("2016-05-26 11:00:00").Name}, LastSchedule: "05-26 11:00:00", Write: Soon,
			},
		},
		"long overdue, Forbid": {
			situation{cron: newCronJob(hourly, policy(batchv1.ForbidConcurrent)), now: "2016-05-26 11:00:01"},
			turn{
				Start: []string{job("2016-05-26 11:00:00").Name}, Events: []string{tooMany, made + job("2016-05-26 11:00:00").Name}, Wake: "59m59s",
				Active: []string{job("2016-05-26 11:00:00").Name}, LastSchedule: "05-26 11:00:00", Write: Soon,
			},
		},
		"long overdue, Replace": {
			situation{cron: newCronJob(hourly, policy(batchv1.ReplaceConcurrent)), now: "2016-05-26 11:00:01"},
			turn{
				Start: []string{job("2016-05-26 11:00:00").Name}, Events: []string{tooMany, made + job("2016-05-26 11:00:00").Name}, Wake: "59m59s",
				Active: []string{job("2016-05-26 11:00:00").Name}, LastSchedule: "05-26 11:00:00", Write: Soon,
			},
		},
		"long overdue, a deadline longer than that": {
			situation{cron: newCronJob(hourly, deadline(8*24*3600)), now: "2016-05-26 11:00:01"},
			turn{
				Start: []string{job("2016-05-26 11:00:00").Name}, Events: []string{tooMany, made + job("2016-05-26 11:00:00").Name}, Wake: "59m59s",
				Active: []string{job("2016-05-26 11:00:00").Name}, LastSchedule: "05-26 11:00:00", Write: Soon,
			},
		},
		"long overdue, the deadline hides the rest": {
			situation{cron: newCronJob(hourly, deadline(2*3600)), now: "2016-05-26 11:00:01"},
			turn{
				Start: []string{job("2016-05-26 11:00:00").Name}, Events: []string{made + job("2016-05-26 11:00:00").Name}, Wake: "59m59s",
				Active: []string{job("2016-05-26 11:00:00").Name}, LastSchedule: "05-26 11:00:00", Write: Soon,
			},
		},
		"long overdue every hour, in phase with the last run": {
			situation{cron: newCronJob("@every 1h", last("2016-05-19 10:01:00")), now: "2016-05-26 10:00:00"},
			turn{
				Start: []string{job("2016-05-26 09:01:00").Name}, Events: []string{tooMany, made + job("2016-05-26 09:01:00").Name}, Wake: "1m0s",
				Active: []string{job("2016-05-26 09:01:00").Name}, LastSchedule: "05-26 09:01:00", Write: Soon,
			},
		},
		"exactly a hundred missed is not too many": {
			situation{cron: newCronJob("* * * * *"), now: "2016-05-19 11:40:00"},
			turn{
				Start: []string{job("2016-05-19 11:40:00").Name}, Events: []string{made + job("2016-05-19 11:40:00").Name}, Wake: "1m0s",
				Active: []string{job("2016-05-19 11:40:00").Name}, LastSchedule: "05-19 11:40:00", Write: Soon,
			},
		},

		// Creations that do not work.
		"the name is taken by a Job of ours that the status does not list": {
			situation{
				cron: newCronJob(hourly), now: "2016-05-19 11:00:01",
				answers: startFails(apierrors.NewAlreadyExists(resource, due11.Name), &due11),
			},
			turn{Start: []string{due11.Name}, Wake: "59m59s", Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon},
		},
		"the name is taken by a Job of ours that has ended": {
			situation{
				cron: newCronJob(hourly), now: "2016-05-19 11:00:01",
				answers: startFails(apierrors.NewAlreadyExists(resource, due11.Name), ptr(job("2016-05-19 11:00:00", ended(Complete, "2016-05-19 11:00:00")))),
			},
			turn{Start: []string{due11.Name}, Wake: "59m59s", LastSchedule: "05-19 11:00:00", Write: Soon},
		},
		"the name is taken by somebody else's Job": {
			situation{
				cron: newCronJob(hourly), now: "2016-05-19 11:00:01",
				answers: startFails(apierrors.NewAlreadyExists(resource, due11.Name), &Child{Name: due11.Name, UID: "x", Controller: "y"}),
			},
			turn{
				Start: []string{due11.Name}, Events: []string{`Warning FailedCreate: Error creating job: jobs.batch "` + due11.Name + `" already exists`},
				Wake: "500ms", Write: Eventually,
			},
		},
		"the name is taken, and nobody can say by whom": {
			situation{cron: newCronJob(hourly), now: "2016-05-19 11:00:01", answers: startFails(apierrors.NewAlreadyExists(resource, due11.Name), nil)},
			turn{Start: []string{due11.Name}, Wake: "500ms", Write: Eventually},
		},
		"the namespace is being deleted": {
			situation{cron: newCronJob(hourly), now: "2016-05-19 11:00:01", answers: startFails(errTerminating(), nil)},
			turn{Start: []string{due11.Name}, Wake: "500ms", Write: Eventually},
		},
		"the creation fails": {
			situation{cron: newCronJob(hourly), now: "2016-05-19 11:00:01", answers: startFails(errRefused, nil)},
			turn{Start: []string{due11.Name}, Events: []string{"Warning FailedCreate: Error creating job: connection refused"}, Wake: "500ms", Write: Eventually},
		},
		"the quota is full of old Jobs, which are deleted": {
			situation{
				cron: newCronJob(hourly, history(0, 0), last("2016-05-19 10:00:00")), now: "2016-05-19 11:00:01", children: []Child{old},
				answers: startFails(apierrors.NewForbidden(resource, due11.Name, errors.New("exceeded quota")), nil),
			},
			turn{
				Start: []string{due11.Name}, Tidy: []string{old.Name}, Events: []string{removed + old.Name},
				Wake: "0s", LastSchedule: "05-19 10:00:00", LastSuccess: "05-19 09:05:00", Write: Soon,
			},
		},
		"the quota is full of other things": {
			situation{
				cron: newCronJob(hourly), now: "2016-05-19 11:00:01",
				answers: startFails(apierrors.NewForbidden(resource, due11.Name, errors.New("exceeded quota")), nil),
			},
			turn{
				Start: []string{due11.Name}, Wake: "500ms", Write: Eventually,
				Events: []string{`Warning FailedCreate: Error creating job: jobs.batch "` + due11.Name + `" is forbidden: exceeded quota`},
			},
		},

		// Jobs and the active list.
		"an active Job is missing in the cache, and exists": {
			situation{cron: newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10)), now: "2016-05-19 10:30:00"},
			turn{Check: []string{due10.Name}, Wake: "5s", Active: []string{due10.Name}, LastSchedule: "05-19 10:00:00"},
		},
		"started, but the Job is missing": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10)), now: "2016-05-19 10:30:00",
				answers: answering(func(o *Outcomes) { o.Check[0].Err = apierrors.NewNotFound(resource, due10.Name) }),
			},
			turn{
				Check: []string{due10.Name}, Events: []string{"Normal MissingJob: Active job went missing: " + due10.Name}, Wake: "0s", LastSchedule: "05-19 10:00:00", Write: Soon,
			},
		},
		"an active Job cannot be asked for": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10)), now: "2016-05-19 10:30:00",
				answers: answering(func(o *Outcomes) { o.Check[0].Err = errRefused }),
			},
			turn{Check: []string{due10.Name}, Wake: "5s", Active: []string{due10.Name}, LastSchedule: "05-19 10:00:00"},
		},
		"a Job was started, and the process ended before it could write": {
			situation{cron: newCronJob(hourly), children: []Child{due11}, now: "2016-05-19 11:10:00", awake: "2016-05-19 11:10:00"},
			turn{Wake: "50m0s", Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon},
		},
		"the same, and the Job has ended": {
			situation{
				cron: newCronJob(hourly), now: "2016-05-19 11:10:00", awake: "2016-05-19 11:10:00",
				children: []Child{job("2016-05-19 11:00:00", ended(Complete, "2016-05-19 11:01:00"))},
			},
			turn{Wake: "50m0s", LastSchedule: "05-19 11:00:00", LastSuccess: "05-19 11:01:00", Write: AtOnce},
		},
		"a Job of the past that the status does not list": {
			situation{cron: newCronJob(hourly, last("2016-05-19 11:00:00")), children: []Child{due10}, now: "2016-05-19 11:10:00"},
			turn{Events: []string{strange + due10.Name}, Wake: "50m0s", LastSchedule: "05-19 11:00:00"},
		},
		"a Job started by hand": {
			situation{cron: newCronJob(hourly), children: []Child{job(created, byHand("m1"))}, now: "2016-05-19 10:10:00"},
			turn{Events: []string{strange + "m1"}, Wake: "50m0s"},
		},
		"a Job started by hand is told of once": {
			situation{cron: newCronJob(hourly), children: []Child{job(created, byHand("m1"))}, before: "2016-05-19 10:10:00", now: "2016-05-19 10:20:00"},
			turn{Wake: "40m0s"},
		},
		"a Job started by hand does not count for Forbid": {
			situation{
				cron: newCronJob(hourly, policy(batchv1.ForbidConcurrent)), children: []Child{job(created, byHand("m1"))},
				before: "2016-05-19 10:10:00", now: "2016-05-19 11:00:01",
			},
			turn{
				Start: []string{due11.Name}, Events: []string{made + due11.Name}, Wake: "59m59s",
				Active: []string{due11.Name}, LastSchedule: "05-19 11:00:00", Write: Soon,
			},
		},
		"a Job triggered under the policy counts": {
			situation{
				cron:     newCronJob(hourly, policy(batchv1.ForbidConcurrent)),
				children: []Child{job(created, byHand("m1"), func(c *Child) { c.Triggered = true })}, now: "2016-05-19 11:00:01",
			},
			turn{Events: []string{isActive}, Wake: "59m59s", Active: []string{"m1"}, Write: Soon},
		},
		"a Job started by hand sets lastSuccessfulTime": {
			situation{
				cron: newCronJob(hourly), now: "2016-05-19 10:10:00",
				children: []Child{job(created, byHand("m1"), ended(Complete, "2016-05-19 10:05:00"))},
			},
			turn{Wake: "50m0s", LastSuccess: "05-19 10:05:00", Write: Soon},
		},

		// History.
		"one successful Job too many": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 13:00:00"), history(1, 1)), now: "2016-05-19 13:30:00",
				children: []Child{
					job("2016-05-19 13:00:00", ended(Complete, "2016-05-19 13:01:00")),
					job("2016-05-19 12:00:00", ended(Complete, "2016-05-19 12:01:00")),
					job("2016-05-19 11:00:00", ended(Failed, "2016-05-19 11:01:00")),
				},
			},
			turn{
				Tidy: []string{job("2016-05-19 12:00:00").Name}, Events: []string{removed + job("2016-05-19 12:00:00").Name}, Wake: "30m0s",
				LastSchedule: "05-19 13:00:00", LastSuccess: "05-19 13:01:00", Write: Soon,
			},
		},
		"failed Jobs that never started are the last to go": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 13:00:00"), history(1, 1)), now: "2016-05-19 13:30:00",
				children: []Child{
					job("2016-05-19 11:00:00", ended(Failed, "2016-05-19 11:01:00"), func(c *Child) { c.Started = time.Time{} }),
					job("2016-05-19 12:00:00", ended(Failed, "2016-05-19 12:01:00")),
					job("2016-05-19 13:00:00", ended(Failed, "2016-05-19 13:01:00")),
				},
			},
			turn{
				Tidy:         []string{job("2016-05-19 12:00:00").Name, job("2016-05-19 13:00:00").Name},
				Events:       []string{removed + job("2016-05-19 12:00:00").Name, removed + job("2016-05-19 13:00:00").Name},
				LastSchedule: "05-19 13:00:00", Wake: "30m0s",
			},
		},
		"no limits": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 12:00:00"), func(c *batchv1.CronJob) {
					c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = nil, nil
				}),
				now: "2016-05-19 12:30:00",
				children: []Child{
					job("2016-05-19 11:00:00", ended(Failed, "2016-05-19 11:01:00")), job("2016-05-19 12:00:00", ended(Failed, "2016-05-19 12:01:00")),
				},
			},
			turn{LastSchedule: "05-19 12:00:00", Wake: "30m0s"},
		},
		"a limit of none: lastSuccessfulTime is set all the same": {
			situation{
				cron: newCronJob(hourly, last("2016-05-19 11:00:00"), history(0, 0), listing(due11)), now: "2016-05-19 11:30:00",
				children: []Child{job("2016-05-19 11:00:00", ended(Complete, "2016-05-19 11:01:00"))},
			},
			turn{
				Tidy: []string{due11.Name}, Events: []string{removed + due11.Name}, LastSchedule: "05-19 11:00:00", LastSuccess: "05-19 11:01:00",
				Wake: "30m0s", Write: Soon,
			},
		},
		"an old Job cannot be deleted: the rest goes on": {
			situation{
				cron: newCronJob(hourly, history(0, 0), last("2016-05-19 10:00:00")), now: "2016-05-19 11:00:01", children: []Child{old},
				answers: answering(func(o *Outcomes) { o.Tidy = []error{errRefused} }),
			},
			turn{
				Start: []string{due11.Name}, Tidy: []string{old.Name}, Wake: "500ms", Active: []string{due11.Name},
				Events:       []string{"Warning FailedDelete: Deleted job: connection refused", made + due11.Name},
				LastSchedule: "05-19 11:00:00", LastSuccess: "05-19 09:05:00", Write: Soon,
			},
		},
		"an old Job could not be deleted just now: it waits for another try": {
			situation{
				cron: newCronJob(hourly, history(0, 0), last("2016-05-19 10:00:00"), suspended(true)), now: "2016-05-19 10:30:00",
				children: []Child{old}, before: "2016-05-19 10:30:00", answersBefore: answering(func(o *Outcomes) { o.Tidy = []error{errRefused} }),
			},
			turn{Wake: "500ms", LastSchedule: "05-19 10:00:00", LastSuccess: "05-19 09:05:00", Write: Soon},
		},
		"an old Job could not be deleted, and the clock was set back since": {
			situation{
				cron: newCronJob(hourly, history(0, 0), last("2016-05-19 10:00:00"), suspended(true)), now: "2016-05-19 10:20:00",
				children: []Child{old}, before: "2016-05-19 10:30:00", answersBefore: answering(func(o *Outcomes) { o.Tidy = []error{errRefused} }),
			},
			turn{
				Tidy: []string{old.Name}, Events: []string{removed + old.Name},
				LastSchedule: "05-19 10:00:00", LastSuccess: "05-19 09:05:00", Write: Soon,
			},
		},
		"an old Job is gone already": {
			situation{
				cron: newCronJob(hourly, history(0, 0), last("2016-05-19 10:00:00")), now: "2016-05-19 10:30:00", children: []Child{old},
				answers: answering(func(o *Outcomes) { o.Tidy = []error{apierrors.NewNotFound(resource, old.Name)} }),
			},
			turn{Tidy: []string{old.Name}, Wake: "30m0s", LastSchedule: "05-19 10:00:00", LastSuccess: "05-19 09:05:00", Write: Soon},
		},
		"an old Job is being deleted already": {
			situation{
				cron: newCronJob(hourly, history(0, 0), last("2016-05-19 10:00:00")), now: "2016-05-19 10:30:00",
				children: []Child{job("2016-05-19 09:00:00", ended(Failed, "2016-05-19 09:05:00"), func(c *Child) { c.Deleting = true })},
			},
			turn{Wake: "30m0s", LastSchedule: "05-19 10:00:00"},
		},
		"a Job that no write tells of is not deleted": {
			situation{
				cron: newCronJob(hourly, history(0, 0)), now: "2016-05-19 11:10:00",
				children: []Child{job("2016-05-19 11:00:00", ended(Complete, "2016-05-19 11:01:00"))},
			},
			turn{Wake: "50m0s", LastSchedule: "05-19 11:00:00", LastSuccess: "05-19 11:01:00", Write: AtOnce},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.decide(t)); diff != "" {
				t.Errorf("turn (-want +got):\n%s", diff)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func errTerminating() error {
	err := apierrors.NewForbidden(resource, "x", errors.New("the namespace is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

func TestAJobThatIsLeftBehindByItsCronJobIsSaidToBeMissing(t *testing.T) {
	due10 := job("2016-05-19 10:00:00")
	cron := newCronJob(hourly, last("2016-05-19 10:00:00"), listing(due10))
	cron.CreationTimestamp = metav1.NewTime(at(created))
	o := Observed{CronJob: FromBatch(cron), Children: []Child{due10}, Now: at("2016-05-19 10:10:00"), Options: DefaultOptions()}
	o.Rules = Read(o.CronJob, time.LoadLocation, time.UTC)
	p := Decide(o)
	o.Memory = Account(o, p, succeed(p)).Memory

	// The CronJob is deleted without its Jobs: the garbage collector takes its name off them, and they go on.
	cron.DeletionTimestamp = new(metav1.NewTime(at("2016-05-19 10:20:00")))
	o.CronJob, o.Children, o.Now = FromBatch(cron), nil, at("2016-05-19 10:20:00")
	p = Decide(o)
	if len(p.Events) > 0 {
		t.Errorf("it tells %v", p.Events)
	}
	if len(p.Check) != 1 || p.Check[0].Name != due10.Name {
		t.Errorf("it asks for %v, want %s, which may exist", p.Check, due10.Name)
	}
}
