// SPDX-License-Identifier: Apache-2.0

package zapslog

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestRecords(t *testing.T) {
	cases := map[string]struct {
		level slog.Level
		write func(*zap.Logger)
		want  string
	}{
		"fields become pairs": {
			write: func(l *zap.Logger) { l.Warn("slow", zap.Duration("took", time.Second), zap.String("range", "a b")) },
			want:  `level=WARN msg=slow took=1s range="a b"`,
		},
		"fields of the logger come first": {
			write: func(l *zap.Logger) { l.With(zap.Int("member", 7)).Error("lost", zap.Error(errors.New("gone"))) },
			want:  `level=ERROR msg=lost member=7 error=gone`,
		},
		"info is not shown by default": {
			write: func(l *zap.Logger) { l.Info("compacted") },
		},
		"info is shown by a more talkative handler": {
			level: slog.LevelInfo - 1,
			write: func(l *zap.Logger) { l.Info("compacted") },
			want:  `level=DEBUG+3 msg=compacted`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
				Level: tc.level,
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				},
			}))
			tc.write(New(log, func(err error) { t.Errorf("the process would have ended: %v", err) }))
			if got := strings.TrimSpace(out.String()); got != tc.want {
				t.Errorf("wrote %q, want %q", got, tc.want)
			}
		})
	}
}

func TestFatalEndsTheGoroutineAndTellsWhy(t *testing.T) {
	for name, end := range map[string]func(*zap.Logger){
		"fatal": func(l *zap.Logger) { l.Fatal("failed to save", zap.Error(syscall.ENOSPC)) },
		"panic": func(l *zap.Logger) { l.Panic("failed to save", zap.Error(syscall.ENOSPC)) },
	} {
		t.Run(name, func(t *testing.T) {
			var got error
			log := New(slog.New(slog.DiscardHandler), func(err error) { got = err })
			done := make(chan struct{})
			wentOn := false
			go func() {
				defer close(done)
				end(log)
				wentOn = true
			}()
			<-done
			if wentOn {
				t.Error("the goroutine went on")
			}
			if got == nil || got.Error() != "failed to save: no space left on device" || !errors.Is(got, syscall.ENOSPC) {
				t.Errorf("told %v, want the message and its error", got)
			}
		})
	}
}
