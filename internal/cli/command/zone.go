// SPDX-License-Identifier: Apache-2.0

package command

import "time"

// ControllerZone returns the time zone in which the controllers of the target read schedules that name none: that of this machine
// for the standalone plane, and UTC, as is usual, for other clusters, which tell nobody.
func (f *Factory) ControllerZone() *time.Location {
	if f.Target.IsPlane() {
		return time.Local
	}
	return time.UTC
}
