// SPDX-License-Identifier: Apache-2.0

package batch

// Keys of labels and annotations. Unless it says otherwise, a key is set on pods, as a label and as an annotation.
const (
	TaskKey      = "volcano.sh/task-spec"     // name of the task
	IndexKey     = "volcano.sh/task-index"    // index within the task
	JobNameKey   = "volcano.sh/job-name"      // name of the Job
	NamespaceKey = "volcano.sh/job-namespace" // label only
	QueueKey     = "volcano.sh/queue-name"
	ForwardKey   = "volcano.sh/job-forwarding" // "true" where the queue has other clusters; annotation of the Job as well

	VersionKey    = "volcano.sh/job-version"            // annotation: the Job's status.version when the pod was made
	RetryKey      = "volcano.sh/job-retry-count"        // annotation: the Job's status.retryCount when the pod was made
	TemplateKey   = "volcano.sh/template-uid"           // annotation: "<job>-<task>"
	PartitionKey  = "volcano.sh/partition-id"           // label: number of the partition
	GroupNameKey  = "scheduling.k8s.io/group-name"      // annotation: name of the PodGroup
	OutOfSyncKey  = "volcano.sh/controller-out-of-sync" // annotation: the controller is about to delete this pod
	TopologyKey   = "volcano.sh/numa-topology-policy"   // annotation: how NUMA nodes are to be used
	JobTypeKey    = "volcano.sh/job-type"               // label of Jobs, for lists
	ScheduledKey  = "volcano.sh/cronjob-scheduled-timestamp"
	TemplateOfKey = "volcano.sh/createdByJobTemplate" // of Jobs: "<namespace>.<name>" of a JobTemplate
	FlowOfKey     = "volcano.sh/createdByJobFlow"     // of Jobs: "<namespace>.<name>" of a JobFlow
)

// Keys that pods get from their Job: labels from labels, annotations from annotations.
const (
	PreemptableKey       = "volcano.sh/preemptable"   // both
	CooldownKey          = "volcano.sh/cooldown-time" // both
	RevocableZoneKey     = "volcano.sh/revocable-zone"
	MinAvailableKey      = "volcano.sh/jdb-min-available"
	MaxUnavailableKey    = "volcano.sh/jdb-max-unavailable"
	DefaultTaskName      = "default" // followed by the position of the task
	DefaultQueue         = "default"
	RootQueue            = "root"
	DefaultSchedulerName = "volcano"
	DefaultMaxRetry      = 3
)
