// SPDX-License-Identifier: Apache-2.0

// Package config holds what users can set, with its defaults and its rules. It reads no flags and no files: the command line
// fills it in, Validate says what is wrong with it, and package app builds the parts from it.
package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Manage says which Jobs the controllers look after.
type Manage string

const (
	// ManageAll is every Job and CronJob: for standalone, and for clusters whose own loops are switched off.
	ManageAll Manage = "all"
	// ManageMarked is only Jobs whose spec.managedBy is MarkedManager; every CronJob is left to the cluster.
	ManageMarked Manage = "marked"
)

// MarkedManager is the value of spec.managedBy that means Drover where another Job controller works in the same cluster.
const MarkedManager = "drover.dev/job-controller"

// Feature gates of Kubernetes.
const (
	GateWorkloadWithJob = "WorkloadWithJob" // that Controllers.Groups stands for
	GateGenericWorkload = "GenericWorkload" // without which there is no GangNative
)

// WebhooksName is the name of the webhook configurations for Volcano's kinds.
const WebhooksName = "drover-volcano"

// SetGates takes from gates what concerns the controllers. It fails on a name that does not.
func (c *Controllers) SetGates(gates map[string]bool) error {
	for name, on := range gates {
		if name != GateWorkloadWithJob {
			return fmt.Errorf("--feature-gates: %q is not known; known is %s", name, GateWorkloadWithJob)
		}
		c.Groups = on
	}
	return nil
}

// ControllerNames are the controllers that can be switched on and off, in the order in which they start.
var ControllerNames = []string{"job", "cronjob", "vcjob", "queue", "podgroup", "jobflow", "cronvcjob"}

// volcanoNames are those of them that work with Volcano's kinds, whose objects no mark tells apart.
var volcanoNames = []string{"vcjob", "queue", "podgroup", "jobflow", "cronvcjob"}

// Controllers configures the controllers, wherever they run.
type Controllers struct {
	Manage Manage // default ManageAll
	// Enabled lists controllers by name; "*" means all, "-name" takes one away. Default: all.
	Enabled []string
	// Namespaces are those to work in; none: all. Kinds without a namespace are read, and queues written, wherever that is.
	Namespaces []string
	// JobWorkers is how many Jobs are looked at at once; 0 means the controller's own default.
	JobWorkers int
	// JobBatchPeriod is the shortest time between two status writes of one Job that tell of ended pods; 0 means the
	// controller's own default.
	JobBatchPeriod time.Duration
	// CronJobWorkers is how many CronJobs are looked at at once; 0 means the controller's own default.
	CronJobWorkers int
	// Groups makes Workloads and PodGroups for Jobs, as the gate WorkloadWithJob of Kubernetes does.
	Groups bool
	// VCJobWorkers is how many Jobs of Volcano are looked at at once; 0 means the controller's own default.
	VCJobWorkers int
	// Gang says who admits the PodGroups of Volcano's Jobs; default GangVolcano.
	Gang Gang
	// InstallKinds makes the definitions of Volcano's kinds that are not there, and the queues root and default.
	InstallKinds bool
	// EventsWait says that the API server holds events back in a rush, as a plane's does, so that many may have to wait here. Elsewhere
	// they are written as client-go does it, which loses what it has no room for: a cluster of thousands of CronJobs has better uses for
	// its API server than four events a start.
	EventsWait bool
	// QPS limits the requests a second to the API server; 0 means no limit, as API Priority and Fairness protects it.
	QPS float32
}

// Gang says who admits the PodGroups of Volcano's Jobs.
type Gang string

const (
	// GangVolcano leaves it to a scheduler of Volcano.
	GangVolcano Gang = "volcano"
	// GangNative admits PodGroups to their queues, and has kube-scheduler place pods together that belong together, by its own
	// PodGroups (scheduling.k8s.io/v1beta1, gate GenericWorkload).
	GangNative Gang = "native"
	// GangNone admits PodGroups as well, and pods are placed one by one.
	GangNone Gang = "none"
)

// Admission configures the webhooks.
type Admission struct {
	Listen string // "host:port"; port 0 is a free one
	// Service is "namespace/name" of the Service by which the API server reaches the webhooks; "": it reaches Listen.
	Service string
	// Secret is "namespace/name" of the Secret for key and certificates; "" means kube-system/drover-volcano-webhook.
	Secret string
	// Name is that of the webhook configurations; "" means WebhooksName.
	Name string
	// Namespaces are those whose objects the API server asks about; none: all.
	Namespaces []string
	// SchedulerName is for Jobs of Volcano that name none; "" means volcano.
	SchedulerName string
	// KindsComing says that the controllers of the same process install Volcano's kinds. Without it, webhooks for kinds that are
	// not there keep nobody waiting.
	KindsComing bool
}

// Validate reports every setting that makes no sense, by the name of its flag.
func (c Controllers) Validate() error {
	var errs []error
	if c.Manage != "" && c.Manage != ManageAll && c.Manage != ManageMarked {
		errs = append(errs, fmt.Errorf("--manage: %q is not known; use %q or %q", c.Manage, ManageAll, ManageMarked))
	}
	for _, name := range c.Enabled {
		if bare := strings.TrimPrefix(name, "-"); bare != "*" && !slices.Contains(ControllerNames, bare) {
			errs = append(errs, fmt.Errorf("--controllers: %q is not known; known are %s", bare, strings.Join(ControllerNames, ", ")))
		}
	}
	errs = append(errs, validNamespaces(c.Namespaces)...)
	if c.Gang != "" && c.Gang != GangVolcano && c.Gang != GangNative && c.Gang != GangNone {
		errs = append(errs, fmt.Errorf("--gang: %q is not known; use %q, %q or %q", c.Gang, GangVolcano, GangNative, GangNone))
	}
	if c.VCJobWorkers < 0 {
		errs = append(errs, fmt.Errorf("--concurrent-vcjob-syncs: %d is negative", c.VCJobWorkers))
	}
	if c.JobWorkers < 0 {
		errs = append(errs, fmt.Errorf("--concurrent-job-syncs: %d is negative", c.JobWorkers))
	}
	if c.JobBatchPeriod < 0 {
		errs = append(errs, fmt.Errorf("--job-batch-period: %v is negative", c.JobBatchPeriod))
	}
	if c.CronJobWorkers < 0 {
		errs = append(errs, fmt.Errorf("--concurrent-cron-job-syncs: %d is negative", c.CronJobWorkers))
	}
	if c.QPS < 0 {
		errs = append(errs, fmt.Errorf("--kube-api-qps: %v is negative; 0 means no limit", c.QPS))
	}
	return errors.Join(errs...)
}

func validNamespaces(names []string) (errs []error) {
	for _, name := range names {
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, fmt.Errorf("--namespaces: %q is no name of a namespace: %s", name, problem))
		}
	}
	return errs
}

// Runs reports whether the controller of that name is switched on.
func (c Controllers) Runs(name string) bool {
	volcano := slices.Contains(volcanoNames, name)
	if len(c.Enabled) == 0 {
		return !volcano || c.Manage != ManageMarked
	}
	if slices.Contains(c.Enabled, "-"+name) || slices.Contains(c.Enabled, "-*") && !slices.Contains(c.Enabled, name) {
		return false
	}
	if volcano && c.Manage == ManageMarked {
		return slices.Contains(c.Enabled, name) // no mark tells them apart: only where somebody asks for it
	}
	return slices.Contains(c.Enabled, name) || slices.Contains(c.Enabled, "*")
}
