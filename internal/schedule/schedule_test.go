// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// instants reads times as RFC 3339, in UTC.
func instants(tb testing.TB, texts ...string) []time.Time {
	tb.Helper()
	times := make([]time.Time, len(texts))
	for i, text := range texts {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			tb.Fatal(err)
		}
		times[i] = at.UTC()
	}
	return times
}

func follow(s *Schedule, from time.Time, n int) []time.Time {
	due := make([]time.Time, n)
	for i := range due {
		from = s.Next(from)
		due[i] = from
	}
	return due
}

func TestExpressionsMeanWhatTheyMeanToTheBuiltInController(t *testing.T) {
	const start = "2016-05-19T10:00:00.5Z"
	for name, tc := range map[string]struct {
		expr, from string
		want       []string
	}{
		"question marks are stars":             {"? ? ? ? ?", start, []string{"2016-05-19T10:01:00Z", "2016-05-19T10:02:00Z"}},
		"a step from a number goes to the end": {"5/20 * * * *", start, []string{"2016-05-19T10:05:00Z", "2016-05-19T10:25:00Z", "2016-05-19T10:45:00Z", "2016-05-19T11:05:00Z"}},
		"a step beyond the field leaves 0":     {"*/90 * * * *", start, []string{"2016-05-19T11:00:00Z", "2016-05-19T12:00:00Z"}},
		"a star among the days means and":      {"0 0 * * 1", start, []string{"2016-05-23T00:00:00Z", "2016-05-30T00:00:00Z", "2016-06-06T00:00:00Z"}},
		"a step of 1 keeps the star":           {"0 0 */1 * 1", start, []string{"2016-05-23T00:00:00Z", "2016-05-30T00:00:00Z", "2016-06-06T00:00:00Z"}},
		"a step of 2 loses the star":           {"0 0 */2 * 1", start, []string{"2016-05-21T00:00:00Z", "2016-05-23T00:00:00Z", "2016-05-25T00:00:00Z", "2016-05-27T00:00:00Z"}},
		"a full range is no star":              {"0 0 1-31 * 1", start, []string{"2016-05-20T00:00:00Z", "2016-05-21T00:00:00Z", "2016-05-22T00:00:00Z"}},
		"names of months and days":             {"0 0 * jan-mar sun", start, []string{"2017-01-01T00:00:00Z", "2017-01-08T00:00:00Z"}},
		"every 10s":                            {"@every 10s", start, []string{"2016-05-19T10:00:10Z", "2016-05-19T10:00:20Z", "2016-05-19T10:00:30Z"}},
		"every half second is every second":    {"@every 500ms", start, []string{"2016-05-19T10:00:01Z", "2016-05-19T10:00:02Z"}},
		"fractions of a second are cut":        {"@every 1500ms", start, []string{"2016-05-19T10:00:01Z", "2016-05-19T10:00:02Z"}},
		"every negative time is every second":  {"@every -5m", start, []string{"2016-05-19T10:00:01Z"}},
		"a date that never comes":              {"59 23 31 2 *", start, []string{"0001-01-01T00:00:00Z"}},
		"nothing but a comma is no minute":     {", * * * *", start, []string{"0001-01-01T00:00:00Z"}},
		"no leap year for eight years":         {"0 0 29 2 *", "2097-01-01T00:00:00Z", []string{"0001-01-01T00:00:00Z"}},
		"1 2 3 4 5 is the 3rd or a Friday": {"1 2 3 4 5", "2026-11-30T00:00:00Z", []string{
			"2027-04-02T02:01:00Z", "2027-04-03T02:01:00Z", "2027-04-09T02:01:00Z", "2027-04-16T02:01:00Z", "2027-04-23T02:01:00Z", "2027-04-30T02:01:00Z",
		}},
		"an hour that comes twice, at half past":              {"TZ=America/New_York 30 1 * * *", "2024-11-02T12:00:00Z", []string{"2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "2024-11-04T06:30:00Z"}},
		"an hour that comes twice, on the hour":               {"TZ=America/New_York 0 1 * * *", "2024-11-02T12:00:00Z", []string{"2024-11-03T05:00:00Z", "2024-11-03T06:00:00Z"}},
		"an hour that does not come":                          {"TZ=America/New_York 30 2 * * *", "2024-03-09T12:00:00Z", []string{"2024-03-11T06:30:00Z"}},
		"the hour after one that comes twice":                 {"CRON_TZ=America/New_York 30 2 * * *", "2024-11-02T12:00:00Z", []string{"2024-11-03T07:30:00Z"}},
		"hourly fires every real hour":                        {"TZ=America/New_York 30 * * * *", "2024-11-03T03:00:00Z", []string{"2024-11-03T03:30:00Z", "2024-11-03T04:30:00Z", "2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "2024-11-03T07:30:00Z"}},
		"a midnight that does not come takes its day with it": {"TZ=Asia/Beirut 30 0 * * *", "2024-03-29T12:00:00Z", []string{"2024-03-29T22:30:00Z", "2024-03-31T21:30:00Z"}},
		"Sao Paulo loses a daily run":                         {"TZ=America/Sao_Paulo 0 0 * * *", "2018-11-03T12:00:00Z", []string{"2018-11-05T02:00:00Z"}},
		"yearly":                                              {"@yearly", start, []string{"2017-01-01T00:00:00Z", "2018-01-01T00:00:00Z"}},
		"annually":                                            {"@annually", start, []string{"2017-01-01T00:00:00Z"}},
		"monthly":                                             {"@monthly", start, []string{"2016-06-01T00:00:00Z"}},
		"weekly":                                              {"@weekly", start, []string{"2016-05-22T00:00:00Z"}},
		"daily":                                               {"@daily", start, []string{"2016-05-20T00:00:00Z"}},
		"midnight":                                            {"@midnight", start, []string{"2016-05-20T00:00:00Z"}},
		"hourly":                                              {"@hourly", start, []string{"2016-05-19T11:00:00Z"}},
		"a descriptor in a zone":                              {"TZ=Asia/Tokyo @daily", start, []string{"2016-05-19T15:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := follow(mustParse(t, tc.expr), instants(t, tc.from)[0], len(tc.want))
			if diff := cmp.Diff(instants(t, tc.want...), got); diff != "" {
				t.Errorf("due times (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoExpressionIsRefusedInWords(t *testing.T) {
	for expr, want := range map[string]string{
		"":                          "empty spec string",
		"TZ=0":                      `invalid schedule format: "TZ=0" names a time zone and nothing after it`,
		"TZ= ":                      "expected exactly 5 fields, found 0: []",
		"* * * *":                   "expected exactly 5 fields, found 4: [* * * *]",
		"0 * * * * *":               "expected exactly 5 fields, found 6: [0 * * * * *]",
		"* * * * 7":                 "end of range (7) above maximum (6): 7",
		"60 * * * *":                "end of range (60) above maximum (59): 60",
		"* * 0 * *":                 "beginning of range (0) below minimum (1): 0",
		"0 0 5-3 * *":               "beginning of range (5) beyond end of range (3): 5-3",
		"*/0 * * * *":               "step of range should be a positive number: */0",
		"0 0 L * *":                 `failed to parse int from L: strconv.Atoi: parsing "L": invalid syntax`,
		"1-2-3 * * * *":             "too many hyphens: 1-2-3",
		"1/2/3 * * * *":             "too many slashes: 1/2/3",
		"1/-2 * * * *":              "negative number (-2) not allowed: -2",
		"@reboot":                   "unrecognized descriptor: @reboot",
		"@every tomorrow":           `failed to parse duration @every tomorrow: time: invalid duration "tomorrow"`,
		"TZ=Nowhere/Land * * * * *": "provided bad location Nowhere/Land: unknown time zone Nowhere/Land",
	} {
		t.Run(expr, func(t *testing.T) {
			_, err := Parse(expr, time.LoadLocation)
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
	if _, err := Parse("TZ=UTC * * * * *", nil); !errors.Is(err, ErrNoZones) {
		t.Errorf("without zones: got %v, want %v", err, ErrNoZones)
	}
}

func TestAScheduleIsReadInTheZoneItIsGiven(t *testing.T) {
	noon := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC)
	tokyo, berlin := zone(t, "Asia/Tokyo"), zone(t, "Europe/Berlin")
	s := mustParse(t, "0 15 * * *")
	for name, tc := range map[string]struct {
		s    *Schedule
		from time.Time
		want string
	}{
		"that of the instant when it has none":       {s, noon.In(berlin), "2024-07-01T15:00:00+02:00"},
		"its own, told in the zone of the instant":   {s.In(tokyo), noon.In(berlin), "2024-07-02T08:00:00+02:00"},
		"the one it names itself, whatever is given": {mustParse(t, "TZ=Asia/Tokyo 0 15 * * *").In(berlin), noon, "2024-07-02T06:00:00Z"},
		"none again when that is taken away":         {s.In(tokyo).In(nil), noon, "2024-07-01T15:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.s.Next(tc.from).Format(time.RFC3339); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestChangesOfTheClocksUnderEachRule(t *testing.T) {
	const (
		autumn  = "2023-10-28T12:00:00Z" // Berlin: 03:00 becomes 02:00 at 2023-10-29T01:00Z
		spring  = "2024-03-30T12:00:00Z" // Berlin: 02:00 becomes 03:00 at 2024-03-31T01:00Z
		samoa   = "2011-12-29T20:00:00Z" // Apia: 30 December does not exist, from 10:00Z
		lordTo  = "2024-04-06T00:00:00Z" // Lord Howe: 02:00 becomes 01:30 at 2024-04-06T15:00Z
		lordFro = "2024-10-05T00:00:00Z" // Lord Howe: 02:00 becomes 02:30 at 2024-10-05T15:30Z
	)
	for name, tc := range map[string]struct {
		expr, zone, from           string
		upstream, once, skip, both []string
	}{
		"a time that comes twice": {
			"0 2 * * *", "Europe/Berlin", autumn,
			[]string{"2023-10-29T00:00:00Z", "2023-10-29T01:00:00Z", "2023-10-30T01:00:00Z"},
			[]string{"2023-10-29T00:00:00Z", "2023-10-30T01:00:00Z"},
			[]string{"2023-10-29T00:00:00Z", "2023-10-30T01:00:00Z"},
			[]string{"2023-10-29T00:00:00Z", "2023-10-29T01:00:00Z", "2023-10-30T01:00:00Z"},
		},
		"a time that does not come": {
			"30 2 * * *", "Europe/Berlin", spring,
			[]string{"2024-04-01T00:30:00Z"},
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"},
			[]string{"2024-04-01T00:30:00Z"},
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"},
		},
		"several that do not come make one": {
			"*/20 2 * * *", "Europe/Berlin", spring,
			[]string{"2024-04-01T00:00:00Z"},
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"},
			[]string{"2024-04-01T00:00:00Z"},
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"},
		},
		"one made up where another is due anyway": {
			"0 2,3 * * *", "Europe/Berlin", spring,
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"},
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"},
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"},
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"},
		},
		"hourly in autumn": {
			"0 * * * *", "Europe/Berlin", "2023-10-28T23:30:00Z",
			[]string{"2023-10-29T00:00:00Z", "2023-10-29T01:00:00Z", "2023-10-29T02:00:00Z"},
			[]string{"2023-10-29T00:00:00Z", "2023-10-29T01:00:00Z", "2023-10-29T02:00:00Z"},
			[]string{"2023-10-29T00:00:00Z", "2023-10-29T01:00:00Z", "2023-10-29T02:00:00Z"},
			[]string{"2023-10-29T00:00:00Z", "2023-10-29T01:00:00Z", "2023-10-29T02:00:00Z"},
		},
		"hourly in spring": {
			"0 * * * *", "Europe/Berlin", "2024-03-30T23:30:00Z",
			[]string{"2024-03-31T00:00:00Z", "2024-03-31T01:00:00Z", "2024-03-31T02:00:00Z"},
			[]string{"2024-03-31T00:00:00Z", "2024-03-31T01:00:00Z", "2024-03-31T02:00:00Z"},
			[]string{"2024-03-31T00:00:00Z", "2024-03-31T01:00:00Z", "2024-03-31T02:00:00Z"},
			[]string{"2024-03-31T00:00:00Z", "2024-03-31T01:00:00Z", "2024-03-31T02:00:00Z"},
		},
		"a day that does not exist": {
			"0 5 * * *", "Pacific/Apia", samoa,
			[]string{"2011-12-30T15:00:00Z", "2011-12-31T15:00:00Z"}, // upstream's hour hand walks on into the 31st
			[]string{"2011-12-30T10:00:00Z", "2011-12-30T15:00:00Z"},
			[]string{"2011-12-30T15:00:00Z", "2011-12-31T15:00:00Z"},
			[]string{"2011-12-30T10:00:00Z", "2011-12-30T15:00:00Z"},
		},
		"half an hour that comes twice": {
			"45 1 * * *", "Australia/Lord_Howe", lordTo,
			[]string{"2024-04-06T14:45:00Z", "2024-04-06T15:15:00Z", "2024-04-07T15:15:00Z"},
			[]string{"2024-04-06T14:45:00Z", "2024-04-07T15:15:00Z"},
			[]string{"2024-04-06T14:45:00Z", "2024-04-07T15:15:00Z"},
			[]string{"2024-04-06T14:45:00Z", "2024-04-06T15:15:00Z", "2024-04-07T15:15:00Z"},
		},
		"half an hour that does not come": {
			"15 2 * * *", "Australia/Lord_Howe", lordFro,
			[]string{"2024-10-06T15:15:00Z"},
			[]string{"2024-10-05T15:30:00Z", "2024-10-06T15:15:00Z"},
			[]string{"2024-10-06T15:15:00Z"},
			[]string{"2024-10-05T15:30:00Z", "2024-10-06T15:15:00Z"},
		},
		"midnight that does not come": {
			"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z",
			[]string{"2018-11-05T02:00:00Z"},
			[]string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
			[]string{"2018-11-05T02:00:00Z"},
			[]string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		},
		"Morocco goes back for Ramadan and forth again": {
			"30 2 * * *", "Africa/Casablanca", "2025-02-22T12:00:00Z",
			[]string{"2025-02-23T01:30:00Z", "2025-02-23T02:30:00Z", "2025-02-24T02:30:00Z"},
			[]string{"2025-02-23T01:30:00Z", "2025-02-24T02:30:00Z"},
			[]string{"2025-02-23T01:30:00Z", "2025-02-24T02:30:00Z"},
			[]string{"2025-02-23T01:30:00Z", "2025-02-23T02:30:00Z", "2025-02-24T02:30:00Z"},
		},
	} {
		for dst, want := range map[DST][]string{Upstream: tc.upstream, Once: tc.once, Skip: tc.skip, Both: tc.both} {
			t.Run(name+", "+dst.String(), func(t *testing.T) {
				s := mustParse(t, tc.expr).In(zone(t, tc.zone)).WithDST(dst)
				if diff := cmp.Diff(instants(t, want...), follow(s, instants(t, tc.from)[0], len(want))); diff != "" {
					t.Errorf("due times (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestASearchOverALostDayComesToAnEnd(t *testing.T) {
	// Upstream's never does: to the day after 29 December 2011 leads no way in Samoa.
	s := mustParse(t, "0 0 15 * *").In(zone(t, "Pacific/Apia"))
	from := instants(t, "2011-12-20T00:00:00Z")[0]
	want := instants(t, "2012-01-14T10:00:00Z")
	if diff := cmp.Diff(want, follow(s, from, 1)); diff != "" {
		t.Errorf("due times (-want +got):\n%s", diff)
	}
}

func TestNextAndBetweenDoNotAllocate(t *testing.T) {
	from := time.Date(2024, 3, 30, 12, 0, 0, 0, time.UTC)
	for _, expr := range []string{"* * * * *", "30 2 * * *", "0 0 29 2 *", "@every 90m"} {
		for _, dst := range []DST{Upstream, Once} {
			s := mustParse(t, expr).In(zone(t, "Europe/Berlin")).WithDST(dst)
			if n := testing.AllocsPerRun(20, func() { s.Next(from); s.Between(from, from.AddDate(1, 0, 0)) }); n != 0 {
				t.Errorf("%q, %v: %v allocations", expr, dst, n)
			}
		}
	}
}

func TestSpreadIsStableEvenAndInsideTheWindow(t *testing.T) {
	// These values are a promise: objects must not move when Drover is updated.
	for identity, want := range map[string]time.Duration{
		"": 574 * time.Second, "default/backup": 234 * time.Second, "default/backup-1": 126 * time.Second, "default/backup-2": 188 * time.Second,
	} {
		if got := Spread(identity, 10*time.Minute); got != want {
			t.Errorf("%q: got %v, want %v", identity, got, want)
		}
	}
	const objects, seconds = 60_000, 60
	var at [seconds]int
	for i := range objects {
		name := "namespace/cronjob-" + time.Duration(i).String()
		place := Spread(name, seconds*time.Second)
		if place < 0 || place >= seconds*time.Second || place%time.Second != 0 {
			t.Fatalf("%q: %v is no place in the window", name, place)
		}
		if wide := Spread(name, 2*seconds*time.Second); wide/2-place > time.Second || wide/2 < place {
			t.Fatalf("%q: %v in a window of 60s, %v in one of 120s", name, place, wide)
		}
		at[place/time.Second]++
	}
	for second, n := range at {
		if mean := objects / seconds; n < mean*85/100 || n > mean*115/100 {
			t.Errorf("second %d: %d objects, about %d expected", second, n, mean)
		}
	}
	for _, window := range []time.Duration{-time.Hour, 0, time.Second, 1999 * time.Millisecond} {
		if got := Spread("x", window); got != 0 {
			t.Errorf("window %v: got %v", window, got)
		}
	}
}
