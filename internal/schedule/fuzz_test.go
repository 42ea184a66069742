// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// FuzzNextAgainstUpstream looks for an expression, a zone and an instant for which the next due times differ from robfig/cron's.
func FuzzNextAgainstUpstream(f *testing.F) {
	f.Add("30 1 * * *", "America/New_York", int64(1730548800), int64(0))
	f.Add("15 2 * * *", "Australia/Lord_Howe", int64(1712400000), int64(1))
	f.Add("0 0 * 11 *", "America/Asuncion", int64(1508000000), int64(0))
	f.Add("30 0 * * *", "Asia/Beirut", int64(1711713600), int64(0))
	f.Add("43 0 * * *", "America/St_Johns", int64(1035600000), int64(0))
	f.Add("33 3 * * *", "Asia/Macau", int64(309200000), int64(0))
	f.Fuzz(func(t *testing.T, expr, zoneName string, sec, nsec int64) {
		z, err := time.LoadLocation(zoneName)
		if err != nil || strings.Contains(expr, "TZ") || sec < 0 || sec > 3e9 || nsec < 0 || nsec >= 1e9 {
			return
		}
		compareParse(t, expr)
		s, err := Parse(expr, nil)
		if err != nil || s.every == 0 && !s.possible() {
			return // upstream tries every minute of five years for what has no value
		}
		compareNext(t, expr, z, time.Unix(sec, nsec), false)
	})
}

// FuzzBetween looks for a window whose sum is not that of the chain.
func FuzzBetween(f *testing.F) {
	f.Add("30 1 * * *", "America/New_York", int64(1730548800), uint8(0), uint64(1))
	f.Add("*/7 2-4 * * 0", "Australia/Lord_Howe", int64(1712400000), uint8(1), uint64(2))
	f.Add("0 0 * 11 *", "America/Asuncion", int64(1508000000), uint8(0), uint64(3))
	f.Fuzz(func(t *testing.T, expr, zoneName string, sec int64, dst uint8, seed uint64) {
		z, err := time.LoadLocation(zoneName)
		if err != nil || sec < 0 || sec > 3e9 || dst > uint8(Both) {
			return
		}
		s, err := Parse(expr, time.LoadLocation)
		if err != nil || s.every > 1000*time.Hour {
			return
		}
		s = s.In(z).WithDST(DST(dst))
		compareBetween(t, s, rand.New(rand.NewPCG(seed, 0)), time.Unix(sec, 0))
		s.Describe()
		s.Lint(time.Unix(sec, 0), time.Unix(sec, 0).AddDate(1, 0, 0))
	})
}
