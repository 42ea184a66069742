// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cron is the name of the CronJob in every history that has one.
const cron = "cron"

// ledger is an annotation that we keep on CronJobs and upstream does not have.
const ledger = "drover.dev/ledger"

// inTimes are the words of a script that depend on when it runs.
var inTimes = regexp.MustCompile(`\$(minute|hour|time|stamp)\((-?[0-9a-z]+)\)`)

// inTime returns text with what depends on the time in its place.
func (a *actor) inTime(text string) string {
	return inTimes.ReplaceAllStringFunc(text, func(word string) string {
		parts := inTimes.FindStringSubmatch(word)
		offset, err := time.ParseDuration(parts[2])
		if err != nil {
			return word // which no command and no API server takes
		}
		switch at := a.base.Add(offset); parts[1] {
		case "minute":
			return strconv.Itoa(at.Minute())
		case "hour":
			return strconv.Itoa(at.Hour())
		case "time":
			return at.Format(time.RFC3339)
		default:
			return strconv.FormatInt(at.Unix()/60, 10)
		}
	})
}

func (a *actor) patchCron(ctx context.Context, body []byte, sub ...string) error {
	_, err := a.client.BatchV1().CronJobs(a.namespace).Patch(ctx, cron, types.MergePatchType, body, metav1.PatchOptions{}, sub...)
	return err
}

func (a *actor) due(ctx context.Context, c command) error {
	ago, err := time.ParseDuration(c.rest)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"lastScheduleTime": a.base.Add(ago).Format(time.RFC3339)}})
	if err != nil {
		return err
	}
	return a.patchCron(ctx, body, "status")
}

func (a *actor) cronSet(ctx context.Context, c command) error {
	body, err := specPatch(c)
	if err != nil {
		return err
	}
	return a.patchCron(ctx, body)
}

func (a *actor) cronPatch(ctx context.Context, c command) error {
	return a.patchCron(ctx, []byte(c.rest))
}

func (a *actor) touch(ctx context.Context, _ command) error {
	return a.patchCron(ctx, fmt.Appendf(nil, `{"metadata": {"annotations": {"touched": "%d"}}}`, time.Now().UnixNano()))
}

func (a *actor) deleteCron(ctx context.Context, c command) error {
	options, err := deletion(c.rest)
	if err != nil {
		return err
	}
	return a.client.BatchV1().CronJobs(a.namespace).Delete(ctx, cron, options)
}

// cronFacts adds what await can ask for of the CronJob.
func (a *actor) cronFacts(have map[string]string) error {
	jobs, err := a.record.jobs.ByIndex("namespace", a.namespace)
	if err != nil {
		return err
	}
	owned := 0
	for _, o := range jobs {
		if ref := metav1.GetControllerOfNoCopy(o.(*batchv1.Job)); ref != nil && ref.Name == cron {
			owned++
		}
	}
	have["jobs"] = strconv.Itoa(owned)
	o, ok, err := a.record.crons.GetByKey(a.namespace + "/" + cron)
	have["cron-gone"] = strconv.FormatBool(!ok)
	if err != nil || !ok {
		return err
	}
	s := &o.(*batchv1.CronJob).Status
	isSet := map[bool]string{true: "set", false: "unset"}
	have["started"] = strconv.Itoa(len(s.Active))
	have["lastSchedule"], have["lastSuccess"] = isSet[s.LastScheduleTime != nil], isSet[s.LastSuccessfulTime != nil]
	return nil
}

// cronLines tells of the CronJobs, and of what their Jobs were started for.
func (a *actor) cronLines(ctx context.Context, n *names, jobs []batchv1.Job) ([]string, error) {
	list, err := a.client.BatchV1().CronJobs(a.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, c := range list.Items {
		n.uids[c.UID] = "cronjob/" + c.Name
		delete(c.Annotations, "touched")
		delete(c.Annotations, ledger)
		for n := range c.Status.Active {
			c.Status.Active[n].ResourceVersion = "" // of the Job when it was created
		}
		for _, line := range n.flatten(&c) {
			lines = append(lines, fmt.Sprintf("cronjob %s: %s", c.Name, line))
		}
		// The same on both sides, because it comes from the schedule and not from the clock.
		if t := c.Status.LastScheduleTime; t != nil {
			lines = append(lines, fmt.Sprintf("cronjob %s: last scheduled %v from the begin", c.Name, t.Sub(a.base)))
		}
	}
	for _, j := range jobs {
		if due, ok := j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]; ok {
			lines = append(lines, fmt.Sprintf("job %s: is for %s", j.Name, due))
		}
	}
	return lines, nil
}
