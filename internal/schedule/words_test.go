// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSchedulesInWords(t *testing.T) {
	for expr, want := range map[string]string{
		"* * * * *":                  "every minute",
		"*/15 * * * *":               "every 15 minutes",
		"0 * * * *":                  "at minute 0 of every hour",
		"5,35 * * * *":               "at minutes 5 and 35 of every hour",
		"*/7 * * * *":                "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour",
		"30 2 * * *":                 "at 02:30 every day",
		"0 2,14 * * *":               "at 02:00 and 14:00 every day",
		"30 6-16/4 * * 1-5":          "at 06:30, 10:30 and 14:30 on Monday to Friday",
		"*/5 9-17 * * mon,wed":       "every 5 minutes from 09:00 to 17:59 on Monday and Wednesday",
		"* 0-3,22 * * *":             "every minute from 00:00 to 03:59 and from 22:00 to 22:59 every day",
		"1-20 0-5 * * *":             "at minutes 1 to 20 of every hour from 00:00 to 05:59 every day",
		"0 0 1 * *":                  "at 00:00 on day 1 of the month",
		"0 0 1,15-20 jan-mar,dec *":  "at 00:00 on days 1 and 15 to 20 of the month in January to March and December",
		"0 0 13 * 5":                 "at 00:00 on day 13 of the month and also on Friday",
		"0 0 1-31 * 1":               "at 00:00 every day",
		"* * * * 0":                  "every minute on Sunday",
		"0 0 , * 1":                  "at 00:00 on Monday",
		"0 0 7 * ,":                  "at 00:00 on day 7 of the month",
		"59 23 31 2 *":               "never",
		"0 0 29 2 *":                 "at 00:00 on day 29 of the month in February",
		", * * * *":                  "never",
		"@yearly":                    "at 00:00 on day 1 of the month in January",
		"@every 90m":                 "every 1h30m, counted from the run before",
		"@every 24h":                 "every 24h, counted from the run before",
		"@every 61s":                 "every 1m1s, counted from the run before",
		"TZ=Europe/Berlin 0 2 * * *": "at 02:00 every day, Europe/Berlin time",
	} {
		t.Run(expr, func(t *testing.T) {
			if got := mustParse(t, expr).Describe(); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestTrapsAreFound(t *testing.T) {
	from := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		expr, zone string
		dst        DST
		want       []string
	}{
		"a plain schedule has none": {"17 4 * * 1-5", "UTC", Upstream, nil},
		"every minute has none":     {"* * * * *", "Europe/Berlin", Upstream, nil},
		"two day fields": {"5 4 13 * 5", "UTC", Upstream, []string{
			"day-or-day: Both day fields are restricted, and a day that fits either of them is due: on day 13 of the month and also on Friday. For days that fit both, test for one of them in the Job itself.",
		}},
		"a star with a step among the day fields": {"5 4 */2 * 1", "UTC", Upstream, []string{
			`uneven-step: In the field day of month, "*/2" starts again on day 1 of every month: intervals differ with the length of the month.`,
			"day-or-day: Both day fields are restricted, and a day that fits either of them is due: on days 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29 and 31 of the month and also on Monday. A star with a step above 1 counts as a restriction. For days that fit both, test for one of them in the Job itself.",
		}},
		"a full range among the day fields": {"5 4 1-31 * 1", "UTC", Upstream, []string{
			"day-or-day: Both day fields are restricted, a day that fits either of them is due, and together that is every day. For days that fit both, test for one of them in the Job itself.",
		}},
		"a day that never comes": {"5 4 31 2 *", "UTC", Upstream, []string{
			"never: No day of the calendar fits: this never runs, and is reported as an invalid schedule.",
		}},
		"an empty list": {", 4 * * *", "UTC", Upstream, []string{
			"ignored-text: The field minute has no value.",
			"never: No day of the calendar fits: this never runs, and is reported as an invalid schedule.",
		}},
		"the full hour":        {"0 * * * *", "UTC", Upstream, []string{"herd: Due at every full hour, when most schedules of the world are. Another minute, or the annotation drover.dev/spread, keeps this out of the crowd."}},
		"midnight":             {"0 0 * * *", "UTC", Upstream, []string{"herd: Due at midnight, when most schedules of the world are. Another minute, or the annotation drover.dev/spread, keeps this out of the crowd."}},
		"a step of 7 minutes":  {"*/7 * * * *", "UTC", Upstream, []string{`uneven-step: In the field minute, "*/7" starts again at 0: from 56 to 0 it is 4, not 7.`}},
		"a step of 90 minutes": {"*/90 4 * * *", "UTC", Upstream, []string{`uneven-step: In the field minute, "*/90" steps beyond the end: it means just 0.`, "herd: Due at a full hour, when most schedules of the world are. Another minute, or the annotation drover.dev/spread, keeps this out of the crowd."}},
		"a step of 5 hours":    {"4 */5 * * *", "UTC", Upstream, []string{`uneven-step: In the field hour, "*/5" starts again at 0: from 20 to 0 it is 4, not 5.`}},
		"an open step":         {"5/20 * * * *", "UTC", Upstream, nil},
		"the 31st":             {"4 4 31 * *", "UTC", Upstream, []string{"short-months: No run in February, April, June, September and November: there is no day 31. For the last day of each month run on days 28 to 31 and test for it in the Job itself."}},
		"the 29th of February": {"4 4 29 2 *", "UTC", Upstream, []string{"short-months: No run in February of ordinary years: there is no day 29. For the last day of each month run on days 28 to 31 and test for it in the Job itself."}},
		"text behind a star":   {"4 *-7 * * *", "UTC", Upstream, []string{`ignored-text: In the field hour, "*-7" is read as "*": what follows the hyphen, "7", has no effect.`}},
		"a zone in the fields": {"TZ=Asia/Tokyo 4 4 * * *", "UTC", Upstream, []string{"zone-in-field: TZ=Asia/Tokyo in a schedule is refused by the API server; set spec.timeZone instead."}},
		"several times a minute": {"@every 10500ms", "UTC", Upstream, []string{
			"elapsed-time: Counted from the run before, or from the creation, and not by the clock: the runs keep no time of day.",
			"sub-minute: Jobs are named by the minute they are due in, so at most one a minute starts.",
			"ignored-text: 10500ms is taken as 10s: whole seconds, and one at least.",
		}},
		"half past two in Berlin": {"30 2 * * *", "Europe/Berlin", Upstream, []string{
			"clock-gap: On 2027-03-28 the clocks of Europe/Berlin go from 02:00 to 03:00: 02:30 does not exist, and there is no run.",
			"clock-repeat: On 2027-10-31 the clocks of Europe/Berlin go from 03:00 to 02:00: 02:30 comes twice, and runs twice.",
		}},
		"half past two in Berlin, once": {"30 2 * * *", "Europe/Berlin", Once, []string{
			"clock-gap: On 2027-03-28 the clocks of Europe/Berlin go from 02:00 to 03:00: 02:30 does not exist, and the run starts at 03:00 instead.",
			"clock-repeat: On 2027-10-31 the clocks of Europe/Berlin go from 03:00 to 02:00: 02:30 comes twice, and runs once.",
		}},
		"half past two in Berlin, skip": {"30 2 * * *", "Europe/Berlin", Skip, []string{
			"clock-gap: On 2027-03-28 the clocks of Europe/Berlin go from 02:00 to 03:00: 02:30 does not exist, and there is no run.",
			"clock-repeat: On 2027-10-31 the clocks of Europe/Berlin go from 03:00 to 02:00: 02:30 comes twice, and runs once.",
		}},
		"every minute of an hour in New York": {"* 2 * * *", "America/New_York", Both, []string{
			"clock-gap: On 2027-03-14 the clocks of America/New_York go from 02:00 to 03:00: 02:00 (one of several) does not exist, and the run starts at 03:00 instead.",
		}},
		"a Sunday that begins without a midnight": {"30 5 * * 0", "Asia/Beirut", Upstream, []string{
			"clock-lost: On 2027-03-27 the clocks of Asia/Beirut go from 00:00 to 01:00: upstream's search skips over 2027-03-28 05:30.",
		}},
		"a quarter past two on Lord Howe": {"15 2 * * *", "Australia/Lord_Howe", Upstream, []string{
			"clock-lost: On 2027-04-04 the clocks of Australia/Lord_Howe go from 02:00 to 01:30: upstream's search skips over 2027-04-04 02:15.",
			"clock-gap: On 2027-10-03 the clocks of Australia/Lord_Howe go from 02:00 to 02:30: 02:15 does not exist, and there is no run.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustParse(t, tc.expr).In(zone(t, tc.zone)).WithDST(tc.dst)
			var got []string
			for _, w := range s.Lint(from, from.AddDate(1, 0, 0)) {
				got = append(got, fmt.Sprintf("%s: %s", w.Trap, w.Text))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// What lint says of changes of the clocks must be what then happens, wherever and whatever the schedule.
func TestLintForetellsWhatTheClocksDo(t *testing.T) {
	r, zones := seeded(t), allZones(t)
	for range rounds(t, 400) {
		z := zones[r.IntN(len(zones))]
		from := time.Date(1975+r.IntN(60), 1, 1, 12, 0, 0, 0, z)
		until := from.AddDate(1, 0, 0)
		if dayLost(z, from) {
			continue
		}
		s := mustParse(t, fmt.Sprintf("%d %d * * *", r.IntN(60), r.IntN(4))).In(z)
		days := 0
		for d := from; d.Before(until); d = d.AddDate(0, 0, 1) {
			days++
		}
		want := s.Between(from, until).Count - days
		got := 0
		for _, w := range s.Lint(from, until) {
			switch {
			case w.Trap == TrapGap, w.Trap == TrapLost:
				got--
			case w.Trap == TrapAstray, w.Trap == TrapRepeat && strings.HasSuffix(w.Text, "runs twice."):
				got++
			}
		}
		if got != want {
			t.Fatalf("%q in %v, %v: %d runs more than days, lint foretells %d: %v", s, z, from.Year(), want, got, s.Lint(from, until))
		}
	}
}
