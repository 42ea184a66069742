// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"
)

var benchmarks = []struct{ name, expr string }{
	{"every minute", "* * * * *"},
	{"every 5 minutes", "*/5 * * * *"},
	{"daily", "30 2 * * *"},
	{"weekdays", "30 6-16/4 * * 1-5"},
	{"yearly", "0 0 1 1 *"},
	{"leap day", "0 0 29 2 *"},
	{"never", "59 23 31 2 *"},
}

func BenchmarkNext(b *testing.B) {
	from := time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, bm := range benchmarks {
		for _, dst := range []DST{Upstream, Once} {
			b.Run(bm.name+"/"+dst.String(), func(b *testing.B) {
				s := mustParse(b, bm.expr).In(zone(b, "Europe/Berlin")).WithDST(dst)
				b.ReportAllocs()
				for b.Loop() {
					s.Next(from)
				}
			})
		}
		b.Run(bm.name+"/robfig", func(b *testing.B) {
			s, err := upstreamParse("TZ=Europe/Berlin " + bm.expr)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Next(from)
			}
		})
	}
}

func BenchmarkBetweenTenYears(b *testing.B) {
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	until := from.AddDate(10, 0, 0)
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			s := mustParse(b, bm.expr).In(zone(b, "Europe/Berlin"))
			b.ReportAllocs()
			for b.Loop() {
				s.Between(from, until)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("30 6-16/4 * jan-mar 1-5", nil); err != nil {
			b.Fatal(err)
		}
	}
}
