// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"strconv"
	"time"
)

// JobName returns the name of the Job for a due time. It is what makes a second start of the same due time impossible, whoever
// tries it: the API server refuses a second object of that name. Due times within one minute share a name.
//
// Source: Kubernetes v1.37 CronJob controller.
func JobName(cronJob string, due time.Time) string {
	return cronJob + "-" + strconv.FormatInt(minute(due), 10)
}

// minute returns the whole minutes since 1970.
func minute(due time.Time) int64 { return due.Unix() / 60 }

// TriggerName returns a name for a Job that is started by hand at now. A CronJob's name has at most 52 characters and a Job's
// at most 63, which leaves ten: "m" and the milliseconds since 1970 in base 36.
func TriggerName(cronJob string, now time.Time) string {
	return cronJob + "-m" + strconv.FormatInt(now.UnixMilli(), 36)
}
